//! The table of codes: one page each, shipped in the binary.
//!
//! A page is Markdown: a paragraph, a failing program and a fixed one, each in a fenced block
//! marked `mon` (or `text`, where a program small enough to print cannot show it).

/// What `monarch explain CODE` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// `M0101`
    pub code: &'static str,
    /// One line, without a full stop.
    pub title: &'static str,
    /// Markdown.
    pub text: &'static str,
}

impl Page {
    /// The programs on the page: by convention the first fails with this code and the last does
    /// not.
    pub fn programs(&self) -> Vec<&'static str> {
        let mut programs = Vec::new();
        let mut rest = self.text;
        while let Some((_, after)) = rest.split_once("```mon\n") {
            let Some((program, after)) = after.split_once("\n```") else { break };
            programs.push(program);
            rest = after;
        }
        programs
    }
}

/// The page of a code; the case of its letter does not matter.
pub fn page(code: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.code.eq_ignore_ascii_case(code))
}

/// All pages, by code.
pub fn pages() -> &'static [Page] {
    PAGES
}

macro_rules! pages {
    ($($code:literal $title:literal)*) => {
        &[$(Page {
            code: $code,
            title: $title,
            text: include_str!(concat!("../codes/", $code, ".md")),
        }),*]
    };
}

const PAGES: &[Page] = pages! {
    "M0000" "An internal fault of the checker"
    "M0001" "Something unexpected, or something missing"
    "M0002" "A bracket without its partner"
    "M0003" "A string or Rhai text that is never closed"
    "M0004" "Brackets nested too deep"
    "M0005" "The program is too large"
    "M0006" "The program is empty"
    "M0007" "An expression that is too long"
    "M0008" "The program is not UTF-8 text"
    "M0009" "A word of the language used as a name"
    "M0010" "The wrong one of `=`, `==`, `:`, `~`, `=>`"
    "M0011" "A weight that does not say how it begins"
    "M0012" "A habit from another language"
    "M0013" "A value that is not used"
    "M0014" "An unknown escape in a string"
    "M0015" "Comparisons or ranges in a chain"
    "M0016" "An `if` without `else`"
    "M0017" "Something that cannot stand at the top level"
    "M0099" "More diagnostics than are shown"
    "M0100" "An unknown block"
    "M0101" "An unknown setting"
    "M0102" "An unknown unit"
    "M0103" "A unit that does not fit"
    "M0104" "A number that could be bytes or a count"
    "M0105" "Something given twice"
    "M0106" "An unknown name"
    "M0107" "A pattern without a match"
    "M0108" "An unknown module, or a name that a module does not have"
    "M0109" "Something that must be there is missing"
    "M0110" "An unknown event, metric or action"
    "M0111" "A value of another type"
    "M0112" "A value out of range"
    "M0113" "An option that the program does not have"
    "M0114" "A param with the name of an option"
    "M0115" "A value on the command line that cannot be read"
    "M0116" "Something that is not used"
    "M0117" "An argument that is not taken"
    "M0118" "An argument that is missing"
    "M0119" "Something defined by itself"
    "M0120" "An unknown member"
    "M0121" "An unknown type"
    "M0122" "A file that cannot be read"
    "M0123" "A file that is not the pinned one"
    "M0124" "A name that means something else"
    "M0125" "An operation that no kernel would do"
    "M0126" "A placeholder that nothing fills in"
    "M0127" "The environment read outside `key`"
    "M0201" "Different axes joined by `@`"
    "M0202" "Different axes combined element by element"
    "M0203" "A result that is not what was promised"
    "M0204" "A size that is not whole"
    "M0205" "An unknown axis"
    "M0206" "An axis that the tensor does not have"
    "M0207" "A pattern of `einsum` that does not fit"
    "M0208" "A pattern of `rearrange` that does not fit"
    "M0209" "An argument of another shape"
    "M0210" "Elements of another type"
    "M0211" "A size that cannot be"
    "M0212" "Axes given in another order"
    "M0213" "A mean over the batch in the wrong place"
    "M0214" "Samples that meet each other"
    "M0215" "A layer that cannot be repeated"
    "M0216" "A weight that may not exist"
    "M0217" "A layer without a complete `forward`"
    "M0218" "Names that do not match the leading axis"
    "M0219" "A loss that does not use the model"
    "M0301" "A program without a job"
    "M0302" "More workers than shards"
    "M0303" "A loss that depends on no weight"
    "M0304" "A weight that does not change the loss"
    "M0305" "A mesh axis that divides nothing"
    "M0306" "A mesh that is not the devices"
    "M0307" "An axis that does not divide"
    "M0310" "Too few micro-batches for the stages"
    "M0311" "A setting without effect on this mesh"
    "M0312" "More stages than blocks"
    "M0313" "A number that has no value"
    "M0314" "Tensor parallel across nodes"
    "M0315" "A link whose rate is assumed"
    "M0316" "Rotary positions over an odd length"
    "M0318" "Weights of targets that depend on the model"
    "M0319" "A device that nothing is known of"
    "M0320" "Micro-batches that do not go around"
    "M0321" "Ids that the model has no place for"
    "M0399" "An internal fault of the planner"
    "M0401" "Not enough memory"
    "M0402" "No layout fits"
    "M0403" "A model with too many operations"
    "M0501" "Things that wait for each other"
    "M0502" "A schedule with a gap"
    "M0503" "A run that ends before its schedule"
    "M0504" "A learning rate given twice"
    "M0505" "Less than one step"
    "M0506" "A batch larger than the data set"
    "M0507" "A batch that does not multiply out"
    "M0508" "A length that was rounded"
    "M0510" "A response that is never reached"
    "M0511" "A response to another fault"
    "M0601" "A column that the data does not have"
    "M0602" "A column with other elements"
    "M0603" "A column of another shape"
    "M0604" "A column that nothing reads"
    "M0605" "A file that does not hold the weights of the model"
    "M0606" "A split that does not work"
    "M0607" "Data or weights that cannot be read"
    "M0608" "Files that are not here"
    "M0609" "A hash that files do not have"
    "M0610" "A size that the checkpoint contradicts"
    "M0611" "A checkpoint of another kind of layer"
    "M0612" "A line of names that cannot be read"
    "M0613" "Adapters on weights that are trained too"
    "M0614" "Samples held out for evaluation"
    "M0615" "A mix that does not work"
    "M0616" "Samples that a mix leaves out"
    "M0701" "A hook that cannot be read"
    "M0702" "A function that hooks do not have"
    "M0703" "A function of hooks with other arguments"
    "M0704" "A name that a hook does not have"
    "M0705" "Functions and statements in the wrong place"
    "M0801" "An axis that the mesh does not have"
    "M0802" "An axis of the mesh that divides something else"
    "M0803" "An axis that no layer of the model has"
    "M0804" "Stages of something that is not repeated"
    "M0805" "A setting that changes nothing"
    "M0806" "Layers of a model that is not trained here"
    "M0850" "A plan that is not the saved one"
    "M0906" "Not carried out yet"
    "M1001" "An assertion that does not hold"
    "M1002" "A test that is not refused as it says"
    "M1003" "A test that asserts nothing"
    "M1004" "`rejects` with a code that does not exist"
    "M1005" "A test that could not be carried out"
};
