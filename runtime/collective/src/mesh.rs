use crate::shm::{as_bytes, as_bytes_mut};
use crate::sum::{BLOCK, Sum};
use crate::transport::{Settings, Transport, check_parts};
use crate::{CollectiveError, Layout, Piece};
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Longest wait before looking at `Stop` again.
const SLICE: Duration = Duration::from_millis(5);
/// Longest payload of one message, in elements: 4 MiB.
const PIECE: usize = 1 << 20;

/// Bytes of the header of a message.
pub const HEADER_BYTES: usize = 32;

/// A received payload.
pub trait BulkPayload {
    /// Length in bytes.
    fn length(&self) -> usize;
    /// Copies all bytes to `target`; false when its length differs.
    fn copy_to(&self, target: &mut [u8]) -> bool;
}

impl BulkPayload for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }

    fn copy_to(&self, target: &mut [u8]) -> bool {
        let fits = target.len() == self.len();
        if fits {
            target.copy_from_slice(self);
        }
        fits
    }
}

/// What arrived, or did not.
pub enum BulkEvent<P> {
    Message {
        peer: u32,
        header: [u8; HEADER_BYTES],
        payload: P,
    },
    /// The connection is gone; what the peer had sent before has been delivered.
    Lost {
        peer: u32,
        why: String,
    },
    /// Nothing within the limit.
    Nothing,
}

/// Why a message could not be sent or nothing can be received any more.
#[derive(Clone, Debug)]
pub struct BulkError {
    pub peer: Option<u32>,
    pub why: String,
}

/// Messages between ranks: reliable, in order for each pair.
pub trait Bulk {
    type Payload: BulkPayload;

    /// Queues a message; false when there is no room for it now. Never waits; the payload may be
    /// changed once it returns.
    fn send(
        &mut self,
        peer: u32,
        header: [u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<bool, BulkError>;

    /// The next event from any peer.
    fn recv(&mut self, limit: Duration) -> Result<BulkEvent<Self::Payload>, BulkError>;
}

/// All-reduce by messages: each rank sends its partial sums of chunk c to rank c, which adds them
/// in the tree's order and sends the sum to all.
pub struct Mesh<B: Bulk> {
    layout: Layout,
    bulk: B,
    settings: Settings,
    sum: Sum,
    /// Collectives begun so far.
    sequence: u32,
    /// Messages that came before they were asked for: of this collective or of a later one.
    waiting: Vec<Message<B::Payload>>,
    lost: Vec<Option<String>>,
    sent_bytes: u64,
    /// Received sources of a piece, one after another.
    scratch: Vec<f32>,
}

struct Message<P> {
    peer: u32,
    head: Head,
    payload: P,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Words = 0,
    Node = 1,
    Sum = 2,
    Copy = 3,
}

/// The header of a message. Everything in it is checked by the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    layout: u32,
    generation: u32,
    step: u64,
    sequence: u32,
    /// 0: words; otherwise 1 + bucket.
    op: u32,
    phase: u16,
    node: u16,
    piece: u32,
}

impl Head {
    fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&self.layout.to_le_bytes());
        out[4..8].copy_from_slice(&self.generation.to_le_bytes());
        out[8..16].copy_from_slice(&self.step.to_le_bytes());
        out[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        out[20..24].copy_from_slice(&self.op.to_le_bytes());
        out[24..26].copy_from_slice(&self.phase.to_le_bytes());
        out[26..28].copy_from_slice(&self.node.to_le_bytes());
        out[28..32].copy_from_slice(&self.piece.to_le_bytes());
        out
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Head {
        let four = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let two = |at: usize| u16::from_le_bytes([0, 1].map(|i| bytes[at + i]));
        Head {
            layout: four(0),
            generation: four(4),
            step: u64::from(four(8)) | u64::from(four(12)) << 32,
            sequence: four(16),
            op: four(20),
            phase: two(24),
            node: two(26),
            piece: four(28),
        }
    }

    /// Whether both belong to one collective.
    fn same(&self, other: &Head) -> bool {
        let key = |h: &Head| (h.layout, h.generation, h.step, h.sequence, h.op);
        key(self) == key(other)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { layout, generation, step, sequence, op, phase, node, piece } = self;
        match op {
            0 => write!(f, "numbers")?,
            _ => write!(f, "bucket {} (phase {phase}, node {node}, piece {piece})", op - 1)?,
        }
        write!(f, " of step {step}, collective {sequence} of generation {generation}, ")?;
        write!(f, "layout {layout:08x}")
    }
}

/// What a reduction still waits for.
struct Due<P> {
    /// By piece of our chunk, then by source: nodes of peers.
    nodes: Vec<Vec<Option<P>>>,
    /// By piece: how many of them are missing.
    missing: Vec<usize>,
    /// By rank: messages that have not come yet.
    pending: Vec<usize>,
    /// By rank: sums that have not come yet (part of `pending`), piece by piece.
    sums: Vec<Vec<bool>>,
}

impl<B: Bulk> Mesh<B> {
    pub fn new(layout: Layout, bulk: B, settings: Settings) -> Mesh<B> {
        let sum = Sum::new(&layout);
        let lost = vec![None; layout.world() as usize];
        Mesh {
            layout,
            bulk,
            settings,
            sum,
            sequence: 0,
            waiting: Vec::new(),
            lost,
            sent_bytes: 0,
            scratch: Vec::new(),
        }
    }

    fn begin(&mut self, step: u64, op: u32) -> Head {
        self.sequence = self.sequence.wrapping_add(1);
        Head {
            layout: self.layout.hash() as u32,
            generation: self.settings.generation,
            step,
            sequence: self.sequence,
            op,
            phase: 0,
            node: 0,
            piece: 0,
        }
    }

    /// Other ranks, the next one first, so that not all send to the same.
    fn others(&self) -> impl Iterator<Item = u32> + use<B> {
        let (me, world) = (self.layout.rank(), self.layout.world());
        (1..world).map(move |i| (me + i) % world)
    }

    /// Sends a message. While there is no room, takes in what peers send: they may be waiting for
    /// room themselves.
    fn send(
        &mut self,
        peer: u32,
        head: Head,
        since: Instant,
        payload: &[u8],
    ) -> Result<(), CollectiveError> {
        self.settings.stop.check()?;
        while !self.bulk.send(peer, head.bytes(), payload).map_err(bulk_error)? {
            if let Some(message) = self.poll(&head, since, |rank| rank == peer)? {
                self.waiting.push(message);
            }
        }
        self.sent_bytes += payload.len() as u64;
        Ok(())
    }

    /// The next message of the collective `ours`; `waits(rank)` says whose are missing.
    fn next(
        &mut self,
        ours: &Head,
        since: Instant,
        waits: impl Fn(u32) -> bool,
    ) -> Result<Message<B::Payload>, CollectiveError> {
        if let Some(at) = self.waiting.iter().position(|m| m.head.same(ours)) {
            return Ok(self.waiting.swap_remove(at));
        }
        loop {
            if let Some(message) = self.poll(ours, since, &waits)? {
                return Ok(message);
            }
        }
    }

    /// Waits a moment for a message of the collective `ours`.
    fn poll(
        &mut self,
        ours: &Head,
        since: Instant,
        waits: impl Fn(u32) -> bool,
    ) -> Result<Option<Message<B::Payload>>, CollectiveError> {
        self.settings.stop.check()?;
        for (rank, lost) in (0..).zip(&self.lost) {
            if let (Some(why), true) = (lost, waits(rank)) {
                return Err(CollectiveError::PeerLost { rank, why: why.clone() });
            }
        }
        match self.bulk.recv(SLICE).map_err(bulk_error)? {
            BulkEvent::Message { peer, header, payload } => {
                let message = Message { peer, head: Head::parse(&header), payload };
                return self.admit(ours, message);
            }
            BulkEvent::Lost { peer, why } => {
                if let Some(lost) = self.lost.get_mut(peer as usize) {
                    *lost = Some(why);
                }
            }
            BulkEvent::Nothing => {
                let waited = since.elapsed();
                if waited >= self.settings.patience {
                    let missing = (0..self.layout.world()).filter(|&r| waits(r)).collect();
                    let what = ours.to_string();
                    return Err(CollectiveError::Timeout { waited, missing, what });
                }
            }
        }
        Ok(None)
    }

    /// Sorts a message: of this collective, of a later one, or wrong.
    fn admit(
        &mut self,
        ours: &Head,
        message: Message<B::Payload>,
    ) -> Result<Option<Message<B::Payload>>, CollectiveError> {
        let theirs = message.head;
        let known = message.peer < self.layout.world() && message.peer != self.layout.rank();
        if known && theirs.same(ours) {
            return Ok(Some(message));
        }
        // A peer is at most a step ahead: its numbers are of all ranks. Small sums may be made
        // without a rank that has no shard.
        let ahead = theirs.sequence.wrapping_sub(ours.sequence) as usize;
        let next = (1..=self.layout.buckets() + 1).contains(&ahead);
        let kin = theirs.layout == ours.layout && theirs.generation == ours.generation;
        if known && next && kin {
            self.waiting.push(message);
            return Ok(None);
        }
        Err(mismatch(message.peer, ours, &theirs))
    }

    fn send_nodes(
        &mut self,
        head: Head,
        since: Instant,
        parts: &[Piece],
    ) -> Result<(), CollectiveError> {
        for owner in self.others() {
            for (node, part) in parts.iter().enumerate() {
                let chunk = self.layout.chunk(part.region().len(), owner);
                for (piece, range) in pieces(chunk).enumerate() {
                    let phase = Phase::Node as u16;
                    let head = Head { phase, node: node as u16, piece: piece as u32, ..head };
                    self.send(owner, head, since, as_bytes(&part.region()[range]))?;
                }
            }
        }
        Ok(())
    }

    fn due(&self, elements: usize) -> Due<B::Payload> {
        let (me, world) = (self.layout.rank(), self.layout.world());
        let own = pieces(self.layout.chunk(elements, me)).count();
        let sources = self.sum.first(world);
        let from = |rank: u32| if rank == me { 0 } else { self.layout.nodes(rank).len() };
        let missing: usize = (0..world).map(from).sum();
        let sums = |rank: u32| {
            if rank == me { 0 } else { pieces(self.layout.chunk(elements, rank)).count() }
        };
        Due {
            nodes: (0..own).map(|_| (0..sources).map(|_| None).collect()).collect(),
            missing: vec![missing; own],
            pending: (0..world).map(|r| from(r) * own + sums(r)).collect(),
            sums: (0..world).map(|r| vec![true; sums(r)]).collect(),
        }
    }

    /// Takes in one message; the number of the piece whose nodes are now complete, if any.
    fn accept(
        &mut self,
        due: &mut Due<B::Payload>,
        ours: &Head,
        message: Message<B::Payload>,
        sum: &mut Piece,
    ) -> Result<Option<usize>, CollectiveError> {
        let Message { peer, head, payload } = message;
        let wrong = || mismatch(peer, ours, &head);
        let piece = head.piece as usize;
        let elements = sum.region().len();
        let pending = due.pending.get_mut(peer as usize).filter(|p| **p > 0).ok_or_else(wrong)?;
        *pending -= 1;
        if head.phase == Phase::Node as u16 {
            let chunk = self.layout.chunk(elements, self.layout.rank());
            let range = pieces(chunk).nth(piece).ok_or_else(wrong)?;
            let (first, end) = (self.sum.first(peer), self.sum.first(peer + 1));
            let source = first + usize::from(head.node);
            let sources = due.nodes.get_mut(piece).ok_or_else(wrong)?;
            let place = sources.get_mut(source).filter(|p| p.is_none() && source < end);
            if payload.length() != range.len() * 4 {
                return Err(wrong());
            }
            *place.ok_or_else(wrong)? = Some(payload);
            due.missing[piece] -= 1;
            return Ok((due.missing[piece] == 0).then_some(piece));
        }
        let range = pieces(self.layout.chunk(elements, peer)).nth(piece);
        let flag = due.sums.get_mut(peer as usize).and_then(|s| s.get_mut(piece));
        let (Some(range), Some(flag)) = (range, flag) else { return Err(wrong()) };
        let fresh = std::mem::replace(flag, false) && head.phase == Phase::Sum as u16;
        if !fresh || !payload.copy_to(as_bytes_mut(&mut sum.region_mut()[range])) {
            return Err(wrong());
        }
        Ok(None)
    }

    /// Adds a piece of our chunk and sends the sum to all.
    fn reduce_piece(
        &mut self,
        (head, since): (Head, Instant),
        piece: usize,
        nodes: &mut [Option<B::Payload>],
        parts: &[Piece],
        sum: &mut Piece,
    ) -> Result<(), CollectiveError> {
        let me = self.layout.rank();
        let elements = sum.region().len();
        let chunk = self.layout.chunk(elements, me);
        let Some(range) = pieces(chunk).nth(piece) else { return Ok(()) };
        let (own, length) = (self.sum.first(me), range.len());
        self.scratch.resize(nodes.len() * length, 0.0);
        for (source, payload) in nodes.iter_mut().enumerate() {
            let room = &mut self.scratch[source * length..(source + 1) * length];
            // Lengths were checked as they came in.
            if let Some(payload) = payload.take() {
                let _ = payload.copy_to(as_bytes_mut(room));
            }
        }
        for at in (0..length).step_by(BLOCK) {
            let count = BLOCK.min(length - at);
            let (scratch, from) = (&self.scratch, range.start + at);
            let total = self.sum.block(count, |source| {
                match source.checked_sub(own).and_then(|i| parts.get(i)) {
                    Some(part) => &part.region()[from..from + count],
                    None => &scratch[source * length + at..source * length + at + count],
                }
            });
            sum.region_mut()[from..from + count].copy_from_slice(total);
        }
        let head = Head { phase: Phase::Sum as u16, node: 0, piece: piece as u32, ..head };
        for peer in self.others() {
            self.send(peer, head, since, as_bytes(&sum.region()[range.clone()]))?;
        }
        Ok(())
    }
}

impl<B: Bulk> Transport for Mesh<B> {
    fn all_reduce(
        &mut self,
        step: u64,
        bucket: usize,
        parts: &[Piece],
        sum: &mut Piece,
    ) -> Result<(), CollectiveError> {
        check_parts(&self.layout, bucket, parts, sum)?;
        if self.layout.elements(bucket) == 0 {
            // No message would hold ranks together: see `admit`.
            return Ok(());
        }
        let head = self.begin(step, 1 + bucket as u32);
        let since = Instant::now();
        self.send_nodes(head, since, parts)?;
        let mut due = self.due(self.layout.elements(bucket));
        if self.others().all(|rank| self.layout.nodes(rank).is_empty()) {
            // Nothing will come that a piece could wait for.
            for (piece, mut nodes) in std::mem::take(&mut due.nodes).into_iter().enumerate() {
                self.reduce_piece((head, since), piece, &mut nodes, parts, sum)?;
            }
        }
        while due.pending.iter().any(|&p| p > 0) {
            let message = self.next(&head, since, |r| due.pending[r as usize] > 0)?;
            if let Some(piece) = self.accept(&mut due, &head, message, sum)? {
                let mut nodes = std::mem::take(&mut due.nodes[piece]);
                self.reduce_piece((head, since), piece, &mut nodes, parts, sum)?;
            }
        }
        Ok(())
    }

    fn copy(
        &mut self,
        step: u64,
        bucket: usize,
        (from, to): (u32, &[bool]),
        values: &mut Piece,
    ) -> Result<(), CollectiveError> {
        let head = Head { phase: Phase::Copy as u16, ..self.begin(step, 1 + bucket as u32) };
        let (since, me) = (Instant::now(), self.layout.rank());
        let gets = |rank: u32| rank != from && to.get(rank as usize) == Some(&true);
        let all: Vec<_> = pieces(0..values.region().len()).collect();
        if me == from {
            for peer in self.others().filter(|rank| gets(*rank)) {
                for (piece, range) in (0..).zip(&all) {
                    let payload = as_bytes(&values.region()[range.clone()]);
                    self.send(peer, Head { piece, ..head }, since, payload)?;
                }
            }
        } else if gets(me) {
            let mut missing = vec![true; all.len()];
            while missing.contains(&true) {
                let message = self.next(&head, since, |rank| rank == from)?;
                let wrong = || mismatch(message.peer, &head, &message.head);
                let piece = message.head.piece as usize;
                let fresh = missing.get_mut(piece).is_some_and(std::mem::take);
                let fits = message.peer == from && message.head.phase == head.phase;
                let range = all.get(piece).filter(|_| fresh && fits).ok_or_else(wrong)?;
                let room = as_bytes_mut(&mut values.region_mut()[range.clone()]);
                if !message.payload.copy_to(room) {
                    return Err(wrong());
                }
            }
        }
        // Nobody runs ahead.
        self.all_gather(step, &[]).map(|_| ())
    }

    fn all_gather(&mut self, step: u64, words: &[u64]) -> Result<Vec<Vec<u64>>, CollectiveError> {
        let head = self.begin(step, 0);
        let since = Instant::now();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        for peer in self.others() {
            self.send(peer, head, since, &bytes)?;
        }
        let world = self.layout.world();
        let mut all: Vec<Option<Vec<u64>>> = vec![None; world as usize];
        all[self.layout.rank() as usize] = Some(words.to_vec());
        while all.iter().any(Option::is_none) {
            let message = self.next(&head, since, |r| all[r as usize].is_none())?;
            let wrong = || mismatch(message.peer, &head, &message.head);
            let mut bytes = vec![0; message.payload.length()];
            let place = all.get_mut(message.peer as usize).filter(|p| p.is_none());
            let copied = message.payload.copy_to(&mut bytes);
            let fits = copied && bytes.len() % 8 == 0 && message.head.phase == Phase::Words as u16;
            if !fits {
                return Err(wrong());
            }
            let word = |b: &[u8]| b.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
            *place.ok_or_else(wrong)? = Some(bytes.chunks_exact(8).map(word).collect());
        }
        Ok(all.into_iter().flatten().collect())
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

fn mismatch(rank: u32, ours: &Head, theirs: &Head) -> CollectiveError {
    let (ours, theirs) = (ours.to_string(), theirs.to_string());
    CollectiveError::Mismatch { rank, ours, theirs }
}

fn bulk_error(error: BulkError) -> CollectiveError {
    match error.peer {
        Some(rank) => CollectiveError::PeerLost { rank, why: error.why },
        None => CollectiveError::Layout(error.why),
    }
}

/// A chunk cut into what one message carries.
fn pieces(chunk: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = chunk.end;
    chunk.step_by(PIECE).map(move |at| at..end.min(at + PIECE))
}
