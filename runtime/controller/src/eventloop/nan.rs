//! Steps whose loss or gradients are not finite, in words.

use super::EventLoop;
use crate::event::{NotFiniteEvent, RunEvent};
use crate::words;
use monarch_sched::Verdict;
use monarch_wire::Origin;

impl EventLoop<'_> {
    pub(super) fn not_finite(&mut self, step: u64, verdict: Verdict, told: bool) {
        let (what, shard) = self.what_is_not_finite(step);
        if verdict == Verdict::Stop {
            self.not_finite = Some(what.clone());
        }
        if told {
            return;
        }
        let (answer, follows) = match verdict {
            Verdict::Skip => ("skip", "its update is left out".to_string()),
            Verdict::Rollback { to: 0 } => {
                let why = "no earlier checkpoint is finite";
                ("rollback", format!("back to the weights of the beginning ({why})"))
            }
            Verdict::Rollback { to } => {
                let next = step + 1;
                (
                    "rollback",
                    format!(
                        "back to the checkpoint of step {to}, and on with the batch of step {next}"
                    ),
                )
            }
            Verdict::Stop => ("stop", "the run ends".to_string()),
        };
        let event = NotFiniteEvent { step, what, shard, answer, follows };
        self.emit(RunEvent::NotFinite(event));
    }

    /// Of all that the ranks say, the shard that comes first.
    fn what_is_not_finite(&mut self, step: u64) -> (String, Option<u32>) {
        let said = self.merge.troubles(step);
        let origins = said.iter().filter_map(|(rank, t)| Some((*rank, t.origin.as_ref()?)));
        let origin = origins.min_by_key(|(_, o)| o.shard);
        let Some(first) = said.values().next() else {
            return (format!("step {step} is not finite"), None);
        };
        let mut text = format!("step {step}: {}", first.what);
        let mut span = first.span;
        if let Some((rank, o)) = origin {
            let Origin { shard, first, end, what, span: place } = o;
            let last = end.saturating_sub(1);
            text =
                format!("{text}: {what}, in shard {shard} (samples {first} to {last} of the epoch");
            text = format!("{text}, worker {rank})");
            span = place.or(span);
        } else if first.what.contains("gradient") {
            text.push_str(": the sum over all shards, each of which is finite");
        }
        let plan = &self.config.plan;
        if let Some(place) = span.and_then(|s| words::locate(plan, &self.config.sources, s)) {
            text = format!("{text}\n  at {place}");
        }
        (text, origin.map(|(_, o)| o.shard))
    }
}
