//! Ids of the data against the tables and scores that they choose from.

use super::{Lowerer, Result};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{NodeId, Op, Span};

impl Lowerer<'_> {
    /// Refuses ids that are known to reach beyond `choices`. Where the data do not say how far
    /// they go, the run looks at each of them.
    pub(super) fn ids_fit(&self, ids: NodeId, choices: Option<u64>, span: Span) -> Result<()> {
        let Op::Column(number) = self.b.graph().node(ids).op else { return Ok(()) };
        let column = self.columns.get(number as usize);
        let Some((column, below)) = column.and_then(|c| Some((c, c.below?))) else { return Ok(()) };
        let Some(choices) = choices.filter(|n| *n < below) else { return Ok(()) };
        let name = &column.name;
        let title =
            format!("ids of `{name}` go to {}, and there are {choices} to choose from", below - 1);
        // Columns without a job are tensors of a test, whose bounds nobody declares.
        let Some(job) = self.job else { return Ok(()) };
        let model = self.program.model(job.model).map_or(span, |m| m.span);
        Err(Diagnostic::error("M0321", title)
            .label(model, format!("has {choices}"))
            .label(column.span, format!("`{name}` has {below} different ids"))
            .label(job.data.span, "this data set")
            .help(format!("give the model {below} where it has {choices}")))
    }
}
