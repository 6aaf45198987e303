//! What a schedule does to a cluster.

use crate::cluster::{Cluster, Thing};
use crate::schedule::{FOR_EVER, IDLE_NS, MS, US, What};
use monarch_sched::{Event, WorkerId};

impl Cluster {
    /// Of those that live, the one with this number.
    fn victim(&self, number: u32) -> Option<usize> {
        let living = || self.nodes.iter().enumerate().filter(|(_, n)| n.alive);
        let count = living().count().max(1);
        living().nth(number as usize % count).map(|(node, _)| node)
    }

    pub fn strike(&mut self, number: usize) {
        let Some(fault) = self.schedule.faults.get(number).copied() else { return };
        if self.hub.outcome.is_some() {
            return;
        }
        self.note(|| format!("! {:?}", fault.what));
        match fault.what {
            What::Kill(who) => {
                if let Some(node) = self.touch(who) {
                    self.end_process(node, true, "killed by signal 9 (SIGKILL)");
                }
            }
            What::Exit(who) => {
                if let Some(node) = self.touch(who) {
                    self.done_to.exits += 1;
                    self.end_process(node, false, "exit code 3");
                }
            }
            What::Fail(who) => {
                if let Some(node) = self.touch(who).and_then(|n| self.nodes.get_mut(n)) {
                    node.fails = true;
                }
            }
            What::Freeze(who, long) => self.freeze(who, long),
            What::Stuck(who, long) => {
                let until_ns = if long == FOR_EVER { long } else { self.now_ns + long };
                if let Some(node) = self.touch(who).and_then(|n| self.nodes.get_mut(n)) {
                    node.stuck_until_ns = until_ns;
                }
            }
            What::Slow(who, times) => {
                if let Some(node) = self.victim(who).and_then(|n| self.nodes.get_mut(n)) {
                    node.slow = times;
                }
            }
            What::Term(who) => {
                if let Some(node) = self.touch(who) {
                    self.done_to.told_to_end += 1;
                    let worker = WorkerId(node as u64);
                    self.send_up(node, Event::Leaving { worker });
                }
            }
            What::Unlink(who) => {
                if let Some(node) = self.touch(who) {
                    let at_ns = self.now_ns + self.random.below(2 * MS);
                    self.queue.push(at_ns, Thing::HubClosed(node));
                    let at_ns = self.now_ns + self.random.below(2 * MS);
                    self.queue.push(at_ns, Thing::NodeClosed(node));
                }
            }
            What::Mute(who, long) => {
                if let Some(node) = self.touch(who) {
                    self.hole(node, long, true);
                }
            }
            What::Deaf(who, long) => {
                if let Some(node) = self.touch(who) {
                    self.hole(node, long, false);
                }
            }
            What::Apart(a, b, long) => {
                if let (Some(a), Some(b)) = (self.touch(a), self.touch(b)) {
                    self.part(a, b, long);
                }
            }
            What::Island(size, long) => self.island(size as usize, long),
            other => self.ask(other),
        }
    }

    /// What concerns no worker.
    fn ask(&mut self, what: What) {
        match what {
            What::DiskFull(long) => {
                self.done_to.disk = true;
                self.disk.full_until_ns = self.now_ns + long;
            }
            What::Guest => self.arrive(None),
            What::Interrupt => {
                self.done_to.interrupts += 1;
                self.feed(Event::Interrupt);
            }
            What::Stop => {
                self.done_to.stops += 1;
                self.feed(Event::Stop);
            }
            What::Checkpoint => {
                self.done_to.asked_saves = true;
                self.feed(Event::Checkpoint);
            }
            _ => {}
        }
    }

    fn touch(&mut self, who: u32) -> Option<usize> {
        let node = self.victim(who)?;
        self.nodes.get_mut(node)?.touched = true;
        Some(node)
    }

    fn freeze(&mut self, who: u32, long: u64) {
        let Some(number) = self.touch(who) else { return };
        let Some(node) = self.nodes.get_mut(number) else { return };
        if node.frozen.is_some() {
            return;
        }
        node.freezes += 1;
        let token = node.freezes;
        node.frozen = Some(token);
        if long < FOR_EVER {
            self.queue.push(self.now_ns + long, Thing::Thaw(number, token));
        }
        if long >= IDLE_NS {
            self.queue.push(self.now_ns + IDLE_NS, Thing::Silent(number, token));
        }
    }

    pub fn thaw(&mut self, number: usize, token: u64) {
        let open = self.hub.open(number);
        let Some(node) = self.nodes.get_mut(number).filter(|n| n.frozen == Some(token)) else {
            return;
        };
        self.trace.iter_mut().for_each(|t| t.push(format!("! w{number} thaws")));
        node.frozen = None;
        for thing in std::mem::take(&mut node.deferred) {
            self.queue.push(self.now_ns, thing);
        }
        if !open {
            // What it sends is answered by nobody.
            self.queue.push(self.now_ns + 100 * US, Thing::NodeClosed(number));
        }
    }

    pub fn silent(&mut self, number: usize, token: u64) {
        if self.nodes.get(number).is_some_and(|n| n.alive && n.frozen == Some(token)) {
            self.queue.push(self.now_ns, Thing::HubClosed(number));
            self.peers_notice(number, 0);
            // Its own connections to them are closed when it wakes up.
            let generation = self.nodes.get(number).map_or(0, |n| n.generation);
            for other in 0..self.nodes.len() {
                if self.nodes.get(number).is_some_and(|n| n.is_peer(other)) {
                    self.queue.push(self.now_ns, Thing::PeerGone(number, other, generation));
                }
            }
        }
    }

    /// One direction of a connection to the controller passes nothing.
    fn hole(&mut self, number: usize, long: u64, outward: bool) {
        let until_ns = if long == FOR_EVER { long } else { self.now_ns + long };
        let Some(node) = self.nodes.get_mut(number) else { return };
        let pipe = if outward { &mut node.outward } else { &mut node.inward };
        pipe.hole_until_ns = pipe.hole_until_ns.max(until_ns);
        if long >= IDLE_NS {
            // Who hears nothing gives up first; after that the other one hears nothing either.
            let (first, second) = (self.now_ns + IDLE_NS, self.now_ns + 2 * IDLE_NS);
            let (hub, own) = if outward { (first, second) } else { (second, first) };
            self.queue.push(hub, Thing::HubClosed(number));
            self.queue.push(own, Thing::NodeClosed(number));
        }
    }

    fn part(&mut self, a: usize, b: usize, long: u64) {
        if a == b {
            return;
        }
        let until_ns = if long == FOR_EVER { long } else { self.now_ns + long };
        self.apart.push((a, b, until_ns));
        if long >= IDLE_NS {
            for (at, whom) in [(a, b), (b, a)] {
                let Some(node) = self.nodes.get(at).filter(|n| n.is_peer(whom)) else { continue };
                let thing = Thing::PeerGone(at, whom, node.generation);
                self.queue.push(self.now_ns + IDLE_NS, thing);
            }
        }
    }

    fn island(&mut self, size: usize, long: u64) {
        let living: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes.get(*n).is_some_and(|n| n.alive)).collect();
        let (there, here) = living.split_at(size.min(living.len()));
        for &node in there {
            if let Some(node) = self.nodes.get_mut(node) {
                node.touched = true;
            }
            self.hole(node, long, true);
            self.hole(node, long, false);
            for &other in here {
                self.part(node, other, long);
            }
        }
    }
}
