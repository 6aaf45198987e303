//! Whether the kernel has killed a worker for lack of memory.
//!
//! The victim itself cannot say: it sees a SIGKILL like any other. The kernel counts such kills
//! for each control group and for the machine. A group's count is worth more: a kill elsewhere on
//! the machine is none of ours. So the machine's is asked only where no group has one.

use std::fs;
use std::path::{Path, PathBuf};

/// The counters of one process, and what they showed when it started.
#[derive(Debug)]
pub(crate) struct OomWatch {
    counters: Vec<PathBuf>,
    at_start: u64,
}

impl OomWatch {
    /// For the process of this number, while it lives.
    pub fn of(pid: u32) -> OomWatch {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        OomWatch::over(counters(&groups, Path::new("/sys/fs/cgroup")))
    }

    fn over(mut counters: Vec<PathBuf>) -> OomWatch {
        if counters.is_empty() {
            counters.push("/proc/vmstat".into());
        }
        let at_start = counters.iter().filter_map(|path| read(path)).sum();
        OomWatch { counters, at_start }
    }

    /// Whether it has been counted since.
    pub fn has_struck(&self) -> bool {
        self.counters.iter().filter_map(|path| read(path)).sum::<u64>() > self.at_start
    }
}

/// Files that count the kills in a process's groups, given its `/proc/PID/cgroup`.
fn counters(groups: &str, root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        let places = if controllers.is_empty() {
            // Version 2: alone, or beside version 1.
            ["", "unified"].map(|place| root.join(place).join(path).join("memory.events"))
        } else if controllers.split(',').any(|c| c == "memory") {
            let memory = root.join("memory");
            // In a container, the group that is its own stands at the root.
            [memory.join(path).join("memory.oom_control"), memory.join("memory.oom_control")]
        } else {
            continue;
        };
        found.extend(places.into_iter().find(|place| read(place).is_some()));
    }
    found
}

fn read(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok().and_then(|text| counter(&text))
}

/// The value of the line `oom_kill N`.
fn counter(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_among_its_neighbours() {
        let text = "oom 3\noom_group_kill 1\noom_kill 12\nother 4\n";
        assert_eq!(counter(text), Some(12));
        assert_eq!(counter("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(counter("nr_free_pages 1"), None);
    }

    #[test]
    fn groups_of_both_versions() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(&path, text).expect("written");
            path
        };
        let old = put("memory/job/a/memory.oom_control", "under_oom 0\noom_kill 3\n");
        let at_root = put("memory/memory.oom_control", "under_oom 0\noom_kill 0\n");
        let new = put("unified/b c/memory.events", "oom 1\noom_kill 1\n");
        let text = "9:name=systemd:/\n4:cpu,memory:/job/a\n0::/b c\n";
        assert_eq!(counters(text, root), [old.clone(), new.clone()]);
        assert_eq!(counters("4:memory:/not/seen/here\n", root), [at_root]);
        assert!(counters("nonsense\n4:cpu\n0::/none\n", root).is_empty());

        let watch = OomWatch::over(vec![old, new.clone()]);
        assert!(!watch.has_struck());
        fs::write(&new, "oom 2\noom_kill 2\n").expect("written");
        assert!(watch.has_struck());
        assert_eq!(OomWatch::over(Vec::new()).counters, [PathBuf::from("/proc/vmstat")]);
    }

    #[test]
    fn nothing_has_struck_since_just_now() {
        assert!(!OomWatch::of(std::process::id()).has_struck());
    }
}
