//! A worker process: the real protocol, and weights that are hashes.

use crate::cluster::{Cluster, PeerSaying, PeerWord, Thing, Word};
use crate::rng::Rng;
use crate::schedule::{CONNECT_NS, FOR_EVER, GRACE_NS, US};
use crate::weights::SHARDS;
use monarch_sched::{Event, Failure, Joined, WorkerId};
use monarch_wire::{Due, DueKind, Form, Links};
use monarch_worker::protocol::{End, Next, Order, Protocol, Trouble};

/// One direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pipe {
    pub last_ns: u64,
    /// Nothing passes until then.
    pub hole_until_ns: u64,
}

impl Pipe {
    /// When what is sent now arrives: after all that was sent before.
    pub fn pass(&mut self, now_ns: u64, delay_ns: u64) -> u64 {
        self.last_ns = (now_ns + delay_ns).max(self.hole_until_ns).max(self.last_ns + 1);
        self.last_ns
    }
}

/// A part of a checkpoint, as it lies on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub attempt: usize,
    pub step: u64,
    pub generation: u64,
    pub rank: u32,
    pub world: u32,
    pub weights: u64,
}

/// What the main thread is at.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Waits for the job.
    Fresh,
    /// Waits for all members to be there.
    Connecting,
    /// Waits for its weights.
    Receiving,
    /// Waits for an order.
    Idle,
    Busy(Work),
    /// Waits for the sums of the others.
    Reducing,
    /// Waits for the save before to be written.
    Saving(Order),
    /// Waits to be told that members change.
    Dropped,
    /// Waits for a place in the next generation.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Open,
    Compute,
    Update,
}

/// What is said to the controller.
pub(crate) enum Saying {
    Hello,
    Ready(String),
    Halted(u64),
    Failed(Failure),
}

pub(crate) struct Node {
    pub slot: Option<u32>,
    pub alive: bool,
    /// Number of the freeze that it is in.
    pub frozen: Option<u64>,
    pub freezes: u64,
    pub deferred: Vec<Thing>,
    pub stuck_until_ns: u64,
    pub slow: u32,
    /// Its end of the connection to the controller is open.
    pub linked: bool,
    pub inward: Pipe,
    pub outward: Pipe,
    /// Something was done to it that it need not survive.
    pub touched: bool,
    /// Says the next time that it computes that something is wrong with the job.
    pub fails: bool,
    pub protocol: Protocol<Form>,
    pub stage: Stage,
    token: u64,
    pub generation: u64,
    /// The place that came with the job, until that is opened.
    first: Option<Form>,
    pub form: Option<Form>,
    /// In order of rank.
    members: Vec<usize>,
    /// Ranks that have said hello.
    here: u64,
    gone: u64,
    /// Steps that the weights have seen, and the weights.
    pub held: Option<(u64, u64)>,
    pub round: u64,
    pub mask: u8,
    pub sums: [u64; SHARDS],
    /// What came before its time.
    pub early: Vec<PeerWord>,
    /// Number of the save at hand.
    pub saving: Option<u64>,
    pub saves: u64,
}

/// Evaluations come before the step at the same edge.
pub(crate) const ROUNDS: u64 = 16;

pub(crate) fn print(weights: u64) -> String {
    format!("{weights:016x}")
}

impl Node {
    pub fn new(slot: Option<u32>, _: &mut Rng) -> Node {
        Node {
            slot,
            alive: true,
            frozen: None,
            freezes: 0,
            deferred: Vec::new(),
            stuck_until_ns: 0,
            slow: 1,
            linked: true,
            inward: Pipe::default(),
            outward: Pipe::default(),
            touched: false,
            fails: false,
            protocol: Protocol::default(),
            stage: Stage::Fresh,
            token: 0,
            generation: 0,
            first: None,
            form: None,
            members: Vec::new(),
            here: 0,
            gone: 0,
            held: None,
            round: 0,
            mask: 0,
            sums: [0; SHARDS],
            early: Vec::new(),
            saving: None,
            saves: 0,
        }
    }

    pub fn end(&mut self) {
        self.alive = false;
        self.linked = false;
        self.frozen = None;
        self.deferred.clear();
        self.touched = true;
    }

    /// Has a connection to this member.
    pub fn is_peer(&self, other: usize) -> bool {
        self.form.is_some() && self.members.contains(&other)
    }

    fn all_mask(&self) -> u64 {
        (1u64 << self.members.len().min(63)) - 1
    }

    fn rank(&self) -> u32 {
        self.form.as_ref().map_or(0, |f| f.rank)
    }

    fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Busy(_))
    }

    /// Who gives its weights to the others, if anyone has to.
    fn donor(&self) -> Option<u32> {
        let form = self.form.as_ref().filter(|f| f.is_shared())?;
        form.holders.iter().position(|h| *h).map(|r| r as u32)
    }

    fn holds(&self) -> bool {
        self.form.as_ref().is_some_and(|f| f.holders.get(f.rank as usize) == Some(&true))
    }
}

/// Shards that a rank computes, one bit each.
pub(crate) fn dealt(form: &Form, shards: u32) -> u8 {
    let dealt = (0..shards).zip(&form.deal).filter(|(_, rank)| **rank == form.rank);
    dealt.fold(0, |mask, (v, _)| mask | 1 << v)
}

impl Cluster {
    pub fn say(&mut self, number: usize, what: Saying) {
        let worker = WorkerId(number as u64);
        let Some(node) = self.nodes.get(number) else { return };
        let event = match what {
            Saying::Hello => Event::Joined(Joined {
                worker,
                host: "a".into(),
                shm_domain: "a".into(),
                cores: 4,
                peer_address: number.to_string(),
                slot: node.slot,
                objection: None,
            }),
            Saying::Ready(fingerprint) => {
                Event::Ready { worker, generation: node.generation, fingerprint }
            }
            Saying::Halted(generation) => Event::Halted {
                worker,
                generation,
                done: node.held.map(|h| h.0),
                peer_address: number.to_string(),
            },
            Saying::Failed(failure) => Event::Failed { worker, failure },
        };
        self.send_up(number, event);
    }

    /// The thread that reads the connection has a message.
    pub fn told(&mut self, number: usize, word: Word) {
        let now_ns = self.now_ns;
        let Some(node) = self.nodes.get_mut(number).filter(|n| n.linked) else { return };
        let protocol = &mut node.protocol;
        match word {
            Word::Start(form) => protocol.begin(form),
            Word::Form(form) => protocol.place(form),
            Word::Halt(generation) => protocol.halt(generation),
            Word::Window(window) => protocol.window(window),
            Word::Finish => protocol.finish(),
            Word::Abort(why) => protocol.close(End::Aborted(why)),
            Word::Refused(why) => protocol.close(End::Refused(why)),
            Word::Release => protocol.close(End::Released),
        }
        if protocol.end().is_some() {
            self.queue.push(now_ns + GRACE_NS, Thing::Reap(number));
        }
        self.poke(number);
    }

    pub fn link_gone(&mut self, number: usize) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        if std::mem::replace(&mut node.linked, false) {
            node.protocol.close(End::Closed("the controller is gone".into()));
            self.queue.push(self.now_ns + GRACE_NS, Thing::Reap(number));
            self.poke(number);
        }
    }

    /// The main thread goes on as far as it can.
    pub fn poke(&mut self, number: usize) {
        while let Some(node) = self.nodes.get_mut(number) {
            if !node.alive || node.frozen.is_some() || node.is_busy() {
                return;
            }
            if let Some(end) = node.protocol.end() {
                let code = if *end == End::Released { "exit code 0" } else { "exit code 1" };
                return self.end_process(number, false, code);
            }
            let fresh = matches!(node.stage, Stage::Fresh);
            if let Some(next) = node.protocol.halted().filter(|_| !fresh) {
                self.drop_generation(number, next);
                continue;
            }
            let moved = match &node.stage {
                Stage::Fresh => match node.protocol.take_job() {
                    Some(form) => {
                        node.first = Some(form);
                        self.work(number, Work::Open, 2_000 * US);
                        true
                    }
                    None => false,
                },
                Stage::Between => match node.protocol.take_place() {
                    Ok(Some(form)) => {
                        self.take_place(number, *form);
                        true
                    }
                    _ => false,
                },
                Stage::Idle => self.obey_order(number),
                Stage::Connecting | Stage::Receiving | Stage::Reducing => self.try_on(number),
                Stage::Saving(order) if node.saving.is_none() => {
                    let order = order.clone();
                    node.stage = Stage::Idle;
                    self.carry_out(number, order);
                    true
                }
                Stage::Saving(_) | Stage::Dropped | Stage::Busy(_) => false,
            };
            if !moved {
                return;
            }
        }
    }

    /// Something that takes time begins.
    pub fn work(&mut self, number: usize, work: Work, takes_ns: u64) {
        let spread = self.random.within(80, 120);
        let Some(node) = self.nodes.get_mut(number) else { return };
        node.token += 1;
        node.stage = Stage::Busy(work);
        let takes_ns = takes_ns * spread / 100 * u64::from(node.slow);
        self.queue.push(self.now_ns + takes_ns, Thing::Done(number, node.token));
    }

    pub fn activity_over(&mut self, number: usize, token: u64) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        if node.token != token {
            return;
        }
        if self.now_ns < node.stuck_until_ns {
            if node.stuck_until_ns < FOR_EVER {
                self.queue.push(node.stuck_until_ns, Thing::Done(number, token));
            }
            return;
        }
        let Stage::Busy(work) = node.stage else { return };
        node.stage = Stage::Dropped;
        if !node.protocol.stops() {
            match work {
                Work::Open => {
                    if let Some(form) = node.first.take() {
                        self.take_place(number, form);
                    }
                }
                Work::Compute => self.computed(number),
                Work::Update => self.updated(number),
            }
        }
        self.poke(number);
    }

    /// All of the generation at hand is given up.
    fn drop_generation(&mut self, number: usize, next: u64) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        node.form = None;
        node.members.clear();
        node.saving = None;
        node.stage = Stage::Between;
        if node.protocol.renew(next) {
            node.generation = next;
            let held = node.held;
            self.note(|| format!("      w{number} halts for {next}, holds {held:?}"));
            self.say(number, Saying::Halted(next));
        }
    }

    fn take_place(&mut self, number: usize, form: Form) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        let generation = form.generation;
        node.generation = generation;
        node.members = match &form.links {
            Links::Quic { peers } => peers.iter().filter_map(|p| p.parse().ok()).collect(),
            _ => vec![number],
        };
        (node.here, node.gone) = (1 << form.rank, 0);
        (node.round, node.mask) = (0, 0);
        let (rank, base) = (form.rank, form.base);
        let shared = form.is_shared();
        node.form = Some(form);
        if node.holds() {
            if node.held.map(|h| h.0) != Some(base) {
                let held = node.held;
                return self.violate(format!("w{number} goes on at {base} with {held:?}"));
            }
        } else {
            let initial = self.quiet.weights.first().copied().unwrap_or_default();
            node.held = (!shared).then_some((base, initial));
            if !shared && base != 0 {
                return self.violate(format!("w{number} begins anew at {base}"));
            }
        }
        node.stage = Stage::Connecting;
        let members = node.members.clone();
        self.note(|| format!("      w{number} is {rank} of {members:?} in {generation}"));
        let word = PeerWord { generation, from: rank, what: PeerSaying::Hello };
        self.tell_peers(number, word);
        self.queue.push(self.now_ns + CONNECT_NS, Thing::ConnectLimit(number, generation));
        let Some(node) = self.nodes.get_mut(number) else { return };
        for word in std::mem::take(&mut node.early) {
            self.peer_said(number, word);
        }
    }

    pub fn tell_peers(&mut self, number: usize, word: PeerWord) {
        let Some(node) = self.nodes.get(number) else { return };
        for place in 0..node.members.len() {
            let peer = self.nodes.get(number).and_then(|n| n.members.get(place).copied());
            if let Some(peer) = peer.filter(|p| *p != number) {
                self.send_peer(number, peer, word);
            }
        }
    }

    pub fn peer_said(&mut self, number: usize, word: PeerWord) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        let placed = node.form.is_some() && node.generation == word.generation;
        if !placed {
            if word.generation >= node.generation {
                node.early.push(word);
            }
            return;
        }
        match word.what {
            PeerSaying::Hello => node.here |= 1 << word.from,
            PeerSaying::State(base, weights) => {
                if matches!(node.stage, Stage::Receiving | Stage::Connecting) {
                    node.held = Some((base, weights));
                }
            }
            PeerSaying::Sums { round, .. } if round > node.round => node.early.push(word),
            PeerSaying::Sums { round, mask, sums } => {
                if round == node.round {
                    if node.mask & mask != 0 {
                        let twice = node.mask & mask;
                        return self.violate(format!("w{number} gets shards {twice:b} twice"));
                    }
                    node.mask |= mask;
                    for (v, (own, sum)) in node.sums.iter_mut().zip(sums).enumerate() {
                        if mask & 1 << v != 0 {
                            *own = sum;
                        }
                    }
                }
            }
        }
        self.poke(number);
    }

    pub fn peer_gone(&mut self, number: usize, whom: usize, generation: u64) {
        let Some(node) = self.nodes.get_mut(number).filter(|n| n.generation == generation) else {
            return;
        };
        if let Some(rank) = node.members.iter().position(|m| *m == whom) {
            node.gone |= 1 << rank;
            self.poke(number);
        }
    }

    pub fn connect_limit(&mut self, number: usize, generation: u64) {
        let Some(node) = self.nodes.get_mut(number).filter(|n| n.generation == generation) else {
            return;
        };
        if matches!(node.stage, Stage::Connecting | Stage::Receiving) {
            node.gone |= node.all_mask() & !node.here;
            self.poke(number);
        }
    }

    /// Goes on if what was waited for is there; false if not.
    fn try_on(&mut self, number: usize) -> bool {
        let full = (1u32 << self.schedule.job.shards) - 1;
        let Some(node) = self.nodes.get_mut(number) else { return false };
        let all = node.here == node.all_mask();
        let (there, lost) = match node.stage {
            Stage::Connecting => (all, node.gone & !node.here),
            Stage::Receiving => (node.held.is_some(), node.gone),
            _ => (u32::from(node.mask) == full, node.gone),
        };
        if !there {
            return lost != 0 && self.lost_peer(number, lost.trailing_zeros());
        }
        match node.stage {
            Stage::Connecting => self.connected(number),
            Stage::Receiving => self.ready(number),
            _ => self.work(number, Work::Update, 30 * US),
        }
        true
    }

    fn connected(&mut self, number: usize) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        node.stage = Stage::Receiving;
        if node.donor() == Some(node.rank())
            && let Some((base, weights)) = node.held
        {
            let (generation, from) = (node.generation, node.rank());
            let what = PeerSaying::State(base, weights);
            self.tell_peers(number, PeerWord { generation, from, what });
        }
    }

    fn ready(&mut self, number: usize) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        node.stage = Stage::Idle;
        let kept = node.form.as_ref().is_some_and(|f| f.holders.iter().all(|h| *h));
        let weights = node.held.map_or(0, |h| h.1);
        let fingerprint = if kept { String::new() } else { print(weights) };
        self.say(number, Saying::Ready(fingerprint));
    }

    /// What follows is for the protocol to say.
    fn lost_peer(&mut self, number: usize, rank: u32) -> bool {
        let Some(node) = self.nodes.get_mut(number) else { return false };
        let next = node.protocol.after(Trouble::LostPeer);
        node.stage = Stage::Dropped;
        let step = node.held.map(|h| h.0);
        if next == Next::Complain {
            let (task, message) = ("reduce".to_string(), "a peer is gone".to_string());
            let failure = Failure { step, task, message, span: None, lost_peer: Some(rank) };
            self.say(number, Saying::Failed(failure));
        }
        true
    }

    fn obey_order(&mut self, number: usize) -> bool {
        let Some(node) = self.nodes.get_mut(number) else { return false };
        let Some((done, _)) = node.held else { return false };
        match node.protocol.next(done) {
            Ok(Some(order)) => {
                self.carry_out(number, order);
                true
            }
            _ => false,
        }
    }

    fn carry_out(&mut self, number: usize, order: Order) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        let Some((done, weights)) = node.held else { return };
        match &order {
            Order::Skip => node.held = Some((done + 1, weights)),
            Order::Step => self.begin_round(number, done * ROUNDS + ROUNDS - 1),
            Order::Due(Due { step, .. }) if *step != done => {
                let step = *step;
                self.violate(format!("w{number} has {done} steps, and is asked for {step}"));
            }
            Order::Due(Due { what: DueKind::Evaluate(which), .. }) => {
                let which = u64::from(*which);
                self.begin_round(number, done * ROUNDS + which);
            }
            _ if node.saving.is_some() => node.stage = Stage::Saving(order),
            Order::Due(Due { what: DueKind::Save { directory }, .. }) => {
                let attempt = directory.parse().unwrap_or(usize::MAX);
                self.begin_save(number, attempt, done, weights);
            }
            Order::Finish => {
                let worker = WorkerId(number as u64);
                let fingerprint = print(weights);
                self.send_up(number, Event::Finished { worker, step: done, fingerprint });
                self.end_process(number, false, "exit code 0");
            }
        }
    }
}
