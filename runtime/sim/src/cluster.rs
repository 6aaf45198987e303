//! A controller, its workers and what lies between them, moved from one event to the next.

use crate::disk::Disk;
use crate::hub::Hub;
use crate::node::{Node, Saying};
use crate::queue::Queue;
use crate::rng::{Rng, mix};
use crate::schedule::{FOR_EVER, MS, Schedule, US};
use crate::weights::{Quiet, SHARDS};
use monarch_sched::{Event, Exit, Outcome};
use monarch_wire::{Form, Window};

/// How often the controller looks at the clock.
const TICK_NS: u64 = 5 * MS;
/// No run of a simulated job takes longer, whatever happens to it.
const LONGEST_NS: u64 = 120_000 * MS;
/// Nor does it consist of more events.
const MOST_EVENTS: u64 = 400_000;

/// What is said to a worker.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    Start(Form),
    Form(Form),
    Halt(u64),
    Window(Window),
    Finish,
    Abort(String),
    Refused(String),
    Release,
}

/// What a worker says to a peer of the same generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerWord {
    pub generation: u64,
    pub from: u32,
    pub what: PeerSaying,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerSaying {
    Hello,
    /// Weights and the number of steps that they have seen.
    State(u64, u64),
    /// Of the shards in `mask`, in one round of reductions.
    Sums {
        round: u64,
        mask: u8,
        sums: [u64; SHARDS],
    },
}

/// Something that happens at its time.
#[derive(Clone, Debug)]
pub(crate) enum Thing {
    Fault(usize),
    Thaw(usize, u64),
    /// A frozen worker has been silent for so long that nobody counts on it.
    Silent(usize, u64),
    Tick,
    Arrive(Option<u32>),
    ToWorker(usize, Word),
    ToHub(usize, Box<Event>),
    ToPeer(usize, PeerWord),
    /// (who notices, who is gone, generation).
    PeerGone(usize, usize, u64),
    /// The controller's, and the worker's, end of the connection is closed.
    HubClosed(usize),
    NodeClosed(usize),
    /// The activity with this number is over.
    Done(usize, u64),
    Written(usize, u64, crate::node::Part),
    ConnectLimit(usize, u64),
    /// The process ends itself, since its run is over.
    Reap(usize),
    /// The controller ends it.
    Kill(usize),
    Exited(u32, usize, Exit),
    Committed(u64, usize),
}

/// How a simulation ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// What must never happen, and has.
    pub violation: Option<String>,
    pub outcome: Option<Outcome>,
    /// Generations formed beyond the first.
    pub generations: u64,
    /// Steps recorded.
    pub steps: u64,
    pub events: u64,
    pub took_ns: u64,
    /// One line per event that matters, if asked for.
    pub trace: Vec<String>,
}

pub(crate) struct Cluster {
    pub now_ns: u64,
    pub queue: Queue<Thing>,
    pub random: Rng,
    pub schedule: Schedule,
    pub quiet: Quiet,
    pub nodes: Vec<Node>,
    pub hub: Hub,
    pub disk: Disk,
    /// Pairs that do not see each other, until then.
    pub apart: Vec<(usize, usize, u64)>,
    /// What has been done to the cluster, for the judge.
    pub done_to: DoneTo,
    pub violation: Option<String>,
    pub trace: Option<Vec<String>>,
    events: u64,
}

/// Faults that have come to pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DoneTo {
    pub interrupts: u32,
    pub stops: u32,
    pub told_to_end: u32,
    pub failures: u32,
    pub exits: u32,
    pub disk: bool,
    pub asked_saves: bool,
}

/// Carries out one schedule.
pub fn run(schedule: &Schedule, traced: bool) -> Report {
    let mut cluster = Cluster::new(schedule, traced);
    cluster.drive();
    Report {
        violation: cluster.violation,
        outcome: cluster.hub.outcome,
        generations: cluster.hub.generation,
        steps: cluster.hub.steps,
        events: cluster.events,
        took_ns: cluster.now_ns,
        trace: cluster.trace.unwrap_or_default(),
    }
}

impl Cluster {
    fn new(schedule: &Schedule, traced: bool) -> Cluster {
        let mut random = Rng(mix(schedule.seed, 0xc1_0c4));
        let hub = Hub::new(&schedule.job, &mut random);
        let mut cluster = Cluster {
            now_ns: 0,
            queue: Queue::default(),
            random,
            quiet: Quiet::of(&schedule.job),
            schedule: schedule.clone(),
            nodes: Vec::new(),
            hub,
            disk: Disk::default(),
            apart: Vec::new(),
            done_to: DoneTo::default(),
            violation: None,
            trace: traced.then(Vec::new),
            events: 0,
        };
        for (number, fault) in schedule.faults.iter().enumerate() {
            cluster.queue.push(fault.at_ns, Thing::Fault(number));
        }
        for number in 0..schedule.job.world {
            let at_ns = cluster.random.within(1, 4 * MS);
            let slot = (number < schedule.job.own).then_some(number);
            cluster.queue.push(at_ns, Thing::Arrive(slot));
        }
        cluster.queue.push(TICK_NS, Thing::Tick);
        cluster
    }

    fn drive(&mut self) {
        while self.violation.is_none() {
            let Some((at_ns, thing)) = self.queue.pop() else { break };
            self.now_ns = self.now_ns.max(at_ns);
            self.events += 1;
            if self.now_ns > LONGEST_NS || self.events > MOST_EVENTS {
                let state = self.hub.describe();
                self.violate(format!("waits for ever: {state}"));
                break;
            }
            self.happen(thing);
            if self.hub.outcome.is_some() && self.everybody_left() {
                break;
            }
        }
        self.judge_leaving();
    }

    fn happen(&mut self, thing: Thing) {
        match thing {
            Thing::Fault(number) => self.strike(number),
            Thing::Tick => {
                if self.hub.outcome.is_none() {
                    self.queue.push(self.now_ns + TICK_NS, Thing::Tick);
                    self.feed(Event::Tick);
                }
            }
            Thing::Arrive(slot) => self.arrive(slot),
            Thing::Thaw(node, token) => self.thaw(node, token),
            Thing::Silent(node, token) => self.silent(node, token),
            Thing::ToHub(node, event) => {
                if self.hub.open(node) {
                    self.note(|| format!("    controller hears {event:?}"));
                    self.hear(node, *event);
                }
            }
            Thing::HubClosed(node) => {
                if self.hub.close(node) {
                    self.note(|| format!("    controller: the link to w{node} is gone"));
                    self.feed_lost(node);
                }
            }
            Thing::Exited(slot, node, exit) => self.child_ended(slot, node, exit),
            Thing::Committed(step, attempt) => self.committed(step, attempt),
            Thing::Kill(node) => self.end_process(node, true, "killed by signal 9 (SIGKILL)"),
            thing => self.at_node(thing),
        }
    }

    /// What a process does itself has to wait while it is frozen.
    fn at_node(&mut self, thing: Thing) {
        let (Thing::ToWorker(number, _)
        | Thing::ToPeer(number, _)
        | Thing::PeerGone(number, _, _)
        | Thing::NodeClosed(number)
        | Thing::Done(number, _)
        | Thing::Written(number, _, _)
        | Thing::Reap(number)
        | Thing::ConnectLimit(number, _)) = &thing
        else {
            return;
        };
        let number = *number;
        let Some(node) = self.nodes.get_mut(number).filter(|n| n.alive) else { return };
        if node.frozen.is_some() {
            node.deferred.push(thing);
            return;
        }
        match thing {
            Thing::ToWorker(_, word) => self.told(number, word),
            Thing::ToPeer(_, word) => self.peer_said(number, word),
            Thing::PeerGone(_, whom, generation) => self.peer_gone(number, whom, generation),
            Thing::NodeClosed(_) => self.link_gone(number),
            Thing::Done(_, token) => self.activity_over(number, token),
            Thing::Written(_, token, part) => self.written(number, token, part),
            Thing::Reap(_) => self.end_process(number, false, "exit code 1"),
            Thing::ConnectLimit(_, generation) => self.connect_limit(number, generation),
            _ => {}
        }
    }

    /// A process begins, and introduces itself.
    pub fn arrive(&mut self, slot: Option<u32>) {
        if self.hub.outcome.is_some() {
            return;
        }
        let number = self.nodes.len();
        self.nodes.push(Node::new(slot, &mut self.random));
        self.hub.connected(number, slot);
        self.note(|| format!("w{number} arrives (slot {slot:?})"));
        self.say(number, Saying::Hello);
    }

    /// Time on the way between the controller and a worker.
    pub fn delay(&mut self) -> u64 {
        let (least, most) = self.schedule.job.delay_ns;
        self.random.within(least, most)
    }

    /// Between two workers always the same within a generation: what is sent first comes first.
    fn peer_delay(&self, from: usize, to: usize, generation: u64) -> u64 {
        let (least, most) = self.schedule.job.delay_ns;
        let pair = mix(mix(from as u64, to as u64), generation);
        (least + pair % (most - least + 1)) / 2
    }

    /// To one worker, in order.
    pub fn send(&mut self, node: usize, word: Word) {
        if !self.hub.open(node) {
            return;
        }
        let delay = self.delay();
        let Some(to) = self.nodes.get_mut(node) else { return };
        let at_ns = to.inward.pass(self.now_ns, delay);
        self.queue.push(at_ns, Thing::ToWorker(node, word));
    }

    /// From a worker to the controller, in order.
    pub fn send_up(&mut self, node: usize, event: Event) {
        let delay = self.delay();
        let Some(from) = self.nodes.get_mut(node).filter(|n| n.linked) else { return };
        let at_ns = from.outward.pass(self.now_ns, delay);
        self.queue.push(at_ns, Thing::ToHub(node, Box::new(event)));
    }

    pub fn send_peer(&mut self, from: usize, to: usize, word: PeerWord) {
        let mut at_ns = self.now_ns + self.peer_delay(from, to, word.generation);
        for (a, b, until) in &self.apart {
            if (*a, *b) == (from, to) || (*b, *a) == (from, to) {
                at_ns = at_ns.max(*until);
            }
        }
        if at_ns < FOR_EVER {
            self.queue.push(at_ns, Thing::ToPeer(to, word));
        }
    }

    /// A process is gone. Its connections break at once, or after a silence.
    pub fn end_process(&mut self, number: usize, by_signal: bool, text: &str) {
        let Some(node) = self.nodes.get_mut(number).filter(|n| n.alive) else { return };
        node.end();
        let slot = node.slot;
        let clean = text == "exit code 0";
        self.note(|| format!("w{number} ends: {text}"));
        let idle = !clean && self.random.chance(10);
        let quick = self.random.within(50 * US, 2 * MS);
        let seen_ns = if idle { crate::schedule::IDLE_NS } else { quick };
        let after = self.nodes.get(number).map_or(0, |n| n.outward.last_ns + 1);
        self.queue.push(after.max(self.now_ns + seen_ns), Thing::HubClosed(number));
        if let Some(slot) = slot {
            let exit = Exit { text: text.to_string(), by_signal, clean };
            let at_ns = self.now_ns + self.random.within(50 * US, 4 * MS);
            self.queue.push(at_ns, Thing::Exited(slot, number, exit));
        }
        self.peers_notice(number, seen_ns);
    }

    /// Those who are connected to a worker find that it is gone.
    pub fn peers_notice(&mut self, number: usize, seen_ns: u64) {
        let generation = self.nodes.get(number).map_or(0, |n| n.generation);
        for other in 0..self.nodes.len() {
            let same = |n: &Node| n.alive && n.generation == generation && n.is_peer(number);
            if other != number && self.nodes.get(other).is_some_and(same) {
                let at_ns = self.now_ns + seen_ns + self.random.below(US * 300);
                self.queue.push(at_ns, Thing::PeerGone(other, number, generation));
            }
        }
    }

    fn everybody_left(&self) -> bool {
        self.nodes.iter().all(|n| !n.alive || (n.slot.is_none() && n.frozen.is_some()))
    }

    /// After the end nobody may stay: not a worker of this machine, nor one that can still move.
    fn judge_leaving(&mut self) {
        if self.violation.is_some() {
            return;
        }
        if self.hub.outcome.is_none() {
            let state = self.hub.describe();
            self.violate(format!("nothing will happen any more, and the run is not over: {state}"));
        } else if !self.everybody_left() {
            let left = self.nodes.iter().position(|n| n.alive).unwrap_or_default();
            self.violate(format!("w{left} stays behind after the end of the run"));
        }
    }

    pub fn violate(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.violation.get_or_insert(what);
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let ms = self.now_ns as f64 / MS as f64;
            trace.push(format!("{ms:10.3} {}", text()));
        }
    }
}
