//! The table of verbs, and the command that is made of it.

use super::{Failure, args};
use clap::{ArgMatches, Command};
use monarch_check::ParamHelp;

/// What `monarch NAME` does.
pub struct Verb {
    pub name: &'static str,
    /// One line for `monarch --help`.
    pub about: &'static str,
    pub group: Group,
    pub takes: Takes,
    /// Command lines and what they do, below `monarch NAME --help`; may be empty.
    pub examples: &'static [(&'static str, &'static str)],
    /// Adds the verb's own arguments. The program, its params and `--json` are there already.
    pub options: fn(Command) -> Command,
    /// The params are those of the program on the command line, if the verb takes one.
    pub run: fn(&ArgMatches, &[ParamHelp]) -> Result<(), Failure>,
}

/// A verb's first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// `JOB.mon`, as `program`; its params are options.
    Program,
    /// The same, and it may be left out.
    MaybeProgram,
    /// Whatever `options` says. Where a word ends in `.mon`, its params are options.
    Words,
    /// Whatever `options` says; its files are only texts.
    Files,
}

impl Takes {
    /// Whether a job comes first.
    pub fn a_program(self) -> bool {
        matches!(self, Takes::Program | Takes::MaybeProgram)
    }
}

/// Where a verb stands in `monarch --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Write,
    Ready,
    Run,
    Machines,
}

impl Group {
    const ALL: [Group; 4] = [Group::Write, Group::Ready, Group::Run, Group::Machines];

    fn title(self) -> &'static str {
        match self {
            Group::Write => "Write a program",
            Group::Ready => "Know before it runs",
            Group::Run => "Train",
            Group::Machines => "Machines",
        }
    }
}

/// All verbs, in the order of `monarch --help`.
pub const VERBS: &[Verb] = &[
    super::new::VERB,
    super::check::VERB,
    super::fmt::VERB,
    super::explain::VERB,
    super::show::VERB,
    super::lsp::VERB,
    super::plan::VERB,
    super::test::VERB,
    super::run::VERB,
    super::sweep::VERB,
    super::chaos::VERB,
    super::worker::VERB,
    super::key::VERB,
    super::bench::VERB,
];

/// The verb of this name.
pub fn find(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|v| v.name == name)
}

/// The whole command, with options for `params`.
pub fn command(params: &[ParamHelp]) -> Command {
    let command = Command::new("monarch")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Checks, plans and runs training programs.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .override_usage("monarch VERB [..]    (`monarch VERB --help` says more)")
        .help_template("{about}\n\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}")
        .after_help(overview());
    VERBS.iter().fold(command, |command, verb| command.subcommand(verb.command(params)))
}

fn overview() -> String {
    let width = VERBS.iter().map(|v| v.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for group in Group::ALL {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}:\n", group.title()));
        for verb in VERBS.iter().filter(|v| v.group == group) {
            text.push_str(&format!("  {:<width$}  {}\n", verb.name, verb.about));
        }
    }
    text.push_str(
        "\nExit codes: 0 ok, 1 the run failed, 2 the program is wrong, 3 the plan differs from \
         the saved\none, 4 the cluster cannot be reached, 130 interrupted. Standard output is \
         data, standard error\nis talk; with `--json` data is one object a line, a version line \
         first.",
    );
    text
}

impl Verb {
    /// The verb's part of the command.
    pub fn command(&self, params: &[ParamHelp]) -> Command {
        let mut command = Command::new(self.name).about(self.about);
        if self.takes.a_program() {
            command = command.arg(args::program(self.takes == Takes::Program));
        }
        command = (self.options)(command.arg(args::json()));
        if !self.examples.is_empty() {
            command = command.after_help(self.examples());
        }
        let params = if self.takes == Takes::Files { &[] } else { params };
        params.iter().fold(command, |command, param| command.arg(args::param(param)))
    }

    fn examples(&self) -> String {
        let width = self.examples.iter().map(|(line, _)| line.len()).max().unwrap_or_default();
        let line =
            |(line, what): &(&str, &str)| format!("\n  {line:<width$}  {what}").trim_end().into();
        let lines: Vec<String> = self.examples.iter().map(line).collect();
        format!("Examples:{}", lines.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn the_command_is_consistent_and_reserves_its_names() {
        let command = command(&[]);
        command.clone().debug_assert();
        for verb in VERBS.iter().filter(|v| v.takes.a_program()) {
            let verb = command.find_subcommand(verb.name).expect("a verb");
            for arg in verb.get_arguments().filter_map(Arg::get_long) {
                assert!(args::reserved().contains(&arg), "`{arg}` is not reserved");
            }
        }
    }

    #[test]
    fn the_overview_fits_a_terminal_and_names_every_verb() {
        let mut command = command(&[]);
        let help = command.render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for verb in VERBS {
            assert!(help.contains(&format!("\n  {} ", verb.name)), "{} is missing", verb.name);
        }
    }
}
