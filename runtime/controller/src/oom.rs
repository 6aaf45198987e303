use std::fs;

/// Tells whether the kernel has killed for lack of memory since it was made.
///
/// The kernel counts such kills for the machine (`/proc/vmstat`) and for each control group. The
/// victim itself cannot say: it sees a SIGKILL like any other.
pub(crate) struct OomWatch {
    at_start: u64,
}

impl OomWatch {
    pub fn new() -> OomWatch {
        OomWatch { at_start: kills() }
    }

    pub fn has_struck(&self) -> bool {
        kills() > self.at_start
    }
}

fn kills() -> u64 {
    let machine = fs::read_to_string("/proc/vmstat").map_or(0, |text| counter(&text));
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| text.lines().find_map(|l| l.strip_prefix("0::").map(str::to_string)))
        .and_then(|path| fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.events")).ok())
        .map_or(0, |text| counter(&text));
    machine + group
}

/// The value of the line `oom_kill N`.
fn counter(text: &str) -> u64 {
    let value = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_among_its_neighbours() {
        let text = "oom 3\noom_group_kill 1\noom_kill 12\nother 4\n";
        assert_eq!(counter(text), 12);
        assert_eq!(counter("nr_free_pages 1"), 0);
    }

    #[test]
    fn nothing_has_struck_since_just_now() {
        assert!(!OomWatch::new().has_struck());
    }
}
