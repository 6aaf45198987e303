//! The data of one diagnostic, its builder, and the bridge to miette.

use std::fmt;

use monarch_graph::Span;

use crate::Sources;

/// How much a diagnostic matters. Only `Error` stops a program from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The program cannot run as it stands.
    Error,
    /// The program runs, and probably not as meant.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// `error`, `warning` or `note`, as JSON output names it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A place in a source and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// One short line; may be empty, which underlines only.
    pub text: String,
}

/// A replacement of the text at `span`; an empty span inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced.
    pub span: Span,
    /// By what.
    pub replacement: String,
}

/// A way out, with the edits that take it where they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Help {
    /// One line.
    pub text: String,
    /// The edits of a quick fix, all to be applied together; empty for plain advice.
    pub edits: Vec<Edit>,
}

/// One mistake, one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// `M0101`; has a page in `codes/`.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The fact, in one line.
    pub title: String,
    /// The first says what to change and gives the diagnostic its place, further ones why.
    pub labels: Vec<Label>,
    /// Ways out, best first.
    pub help: Vec<Help>,
}

impl Diagnostic {
    /// A diagnostic of any severity, without labels.
    pub fn new(severity: Severity, code: &'static str, title: impl Into<String>) -> Self {
        Diagnostic { code, severity, title: title.into(), labels: Vec::new(), help: Vec::new() }
    }

    /// A diagnostic that stops the program.
    pub fn error(code: &'static str, title: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, title)
    }

    /// A diagnostic that does not stop the program.
    pub fn warning(code: &'static str, title: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, title)
    }

    /// A remark.
    pub fn note(code: &'static str, title: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, title)
    }

    /// Adds a label. The first one is the diagnostic's place.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    /// Adds advice without an edit.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(Help { text: text.into(), edits: Vec::new() });
        self
    }

    /// Adds advice with one edit.
    pub fn fix(self, text: impl Into<String>, span: Span, replacement: impl Into<String>) -> Self {
        self.fixes(text, vec![Edit { span, replacement: replacement.into() }])
    }

    /// Adds advice with several edits, applied together.
    pub fn fixes(mut self, text: impl Into<String>, edits: Vec<Edit>) -> Self {
        self.help.push(Help { text: text.into(), edits });
        self
    }

    /// The place of the diagnostic: its first label, if it has one.
    pub fn span(&self) -> Option<Span> {
        self.labels.first().map(|label| label.span)
    }

    /// Whether the program cannot run because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Ties the diagnostic to its sources, as an error that miette (or anyone) can render.
    pub fn report(self, sources: &Sources) -> Report {
        Report::new(self, sources)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.title)
    }
}

/// A diagnostic that owns the source of its first label: implements [`std::error::Error`] and
/// [`miette::Diagnostic`]. Labels in other files are left to the related list, since a miette
/// report has one source.
#[derive(Debug)]
pub struct Report {
    diagnostic: Diagnostic,
    source: Option<miette::NamedSource<String>>,
    help: Option<String>,
    related: Vec<Report>,
}

impl Report {
    /// Copies out of `sources` the texts that the labels need.
    pub fn new(mut diagnostic: Diagnostic, sources: &Sources) -> Self {
        let home = diagnostic.span().map(|span| span.file);
        let (here, away): (Vec<Label>, Vec<Label>) =
            diagnostic.labels.drain(..).partition(|label| Some(label.span.file) == home);
        diagnostic.labels = here;
        let related = away
            .into_iter()
            .map(|label| {
                let note = Diagnostic::note(diagnostic.code, label.text.clone());
                Report::new(note.label(label.span, label.text), sources)
            })
            .collect();
        let source = home
            .and_then(|file| sources.get(file))
            .map(|source| miette::NamedSource::new(source.name(), source.text().to_owned()));
        let help = diagnostic.help.iter().map(|help| help.text.as_str()).collect::<Vec<_>>();
        let help = (!help.is_empty()).then(|| help.join("\n"));
        Report { diagnostic, source, help, related }
    }

    /// The diagnostic inside.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.diagnostic
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.diagnostic.title)
    }
}

impl std::error::Error for Report {}

impl miette::Diagnostic for Report {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.diagnostic.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Note => miette::Severity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.source.as_ref().map(|source| source as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        self.source.as_ref()?;
        Some(Box::new(self.diagnostic.labels.iter().map(|label| {
            let start = label.span.start as usize;
            let length = (label.span.end as usize).saturating_sub(start);
            miette::LabeledSpan::new(Some(label.text.clone()), start, length)
        })))
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn miette::Diagnostic> + 'a>> {
        if self.related.is_empty() {
            return None;
        }
        Some(Box::new(self.related.iter().map(|report| report as &dyn miette::Diagnostic)))
    }
}
