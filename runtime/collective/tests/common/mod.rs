//! Ranks as threads, lanes as threads within them, and a mesh in memory.
#![allow(dead_code)]

use monarch_collective::*;
use monarch_graph::tree::{self, TreeNode};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A small generator for test data (SplitMix64, Steele et al. 2014).
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Gradient of a shard: numbers of very different sizes, so that every order of addition has
/// its own bits.
pub fn gradient(seed: u64, step: u64, shard: u32, elements: usize) -> Vec<f32> {
    (0..elements as u64)
        .map(|i| {
            let r = mix(seed ^ mix(step) ^ mix(u64::from(shard) << 40 | i));
            let size = f32::from(2u8).powi((r % 24) as i32 - 12);
            ((r >> 40) as f32 / 8_388_608.0 - 1.0) * size
        })
        .collect()
}

pub fn expected(seed: u64, step: u64, shards: u32, elements: usize) -> Vec<f32> {
    let mut leaf = |n: TreeNode| (n.level == 0).then(|| gradient(seed, step, n.index, elements));
    let mut add =
        |a: Vec<f32>, b: Vec<f32>| a.iter().zip(&b).map(|(x, y)| x + y).collect::<Vec<f32>>();
    tree::fold(tree::root(shards), shards, &mut leaf, &mut add).unwrap()
}

type Mail = (u32, [u8; HEADER_BYTES], Vec<u8>);

#[derive(Default)]
struct Box_ {
    mail: Mutex<(VecDeque<Mail>, Vec<u32>)>,
    rang: Condvar,
}

/// One rank's end of a mesh in memory.
pub struct Memory {
    rank: u32,
    boxes: Arc<Vec<Box_>>,
}

pub fn memory_mesh(world: u32) -> Vec<Memory> {
    let boxes = Arc::new((0..world).map(|_| Box_::default()).collect::<Vec<_>>());
    (0..world).map(|rank| Memory { rank, boxes: boxes.clone() }).collect()
}

impl Bulk for Memory {
    type Payload = Vec<u8>;

    fn send(
        &mut self,
        peer: u32,
        header: [u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<bool, BulkError> {
        let target = &self.boxes[peer as usize];
        let mut mail = target.mail.lock().unwrap();
        // Little room, so that senders have to wait.
        let room = mail.0.len() < 3;
        if room {
            mail.0.push_back((self.rank, header, payload.to_vec()));
            target.rang.notify_all();
        }
        Ok(room)
    }

    fn recv(&mut self, limit: Duration) -> Result<BulkEvent<Vec<u8>>, BulkError> {
        let own = &self.boxes[self.rank as usize];
        let mut mail = own.mail.lock().unwrap();
        for waited in [false, true] {
            if let Some((peer, header, payload)) = mail.0.pop_front() {
                return Ok(BulkEvent::Message { peer, header, payload });
            }
            if let Some(peer) = mail.1.pop() {
                return Ok(BulkEvent::Lost { peer, why: "dropped".into() });
            }
            if !waited {
                mail = own.rang.wait_timeout(mail, limit).unwrap().0;
            }
        }
        Ok(BulkEvent::Nothing)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (rank, other) in (0..).zip(self.boxes.iter()) {
            if rank != self.rank {
                other.mail.lock().unwrap().1.push(self.rank);
                other.rang.notify_all();
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Shared,
    Messages,
}

/// A rank's transport and its pool.
pub fn open(
    kind: Kind,
    path: &str,
    bulk: Memory,
    layout: &Layout,
    lanes: usize,
    settings: &Settings,
) -> Result<(Box<dyn Transport>, Arc<Pool>), CollectiveError> {
    match kind {
        _ if layout.world() == 1 => {
            Ok((Box::new(Alone::new(layout.clone())), Pool::private(layout, lanes)?.into()))
        }
        Kind::Shared => {
            let pool = Arc::new(Pool::shared(layout, lanes)?);
            let shared = SharedMemory::attach(path, layout, &pool, settings)?;
            Ok((Box::new(shared), pool))
        }
        Kind::Messages => {
            let mesh = Mesh::new(layout.clone(), bulk, settings.clone());
            Ok((Box::new(mesh), Pool::private(layout, lanes)?.into()))
        }
    }
}

fn nap(random: u64) {
    match random % 8 {
        0 => std::thread::sleep(Duration::from_micros(random >> 8 & 0xff)),
        1 | 2 => std::thread::yield_now(),
        _ => {}
    }
}

/// One step of one rank: lanes fill slabs, this thread reduces. The reduced slab.
pub fn step(
    transport: &mut dyn Transport,
    fold: &Fold,
    lanes: usize,
    seed: u64,
    step: u64,
    stop: &Stop,
) -> Result<Vec<f32>, CollectiveError> {
    let layout = fold.layout();
    fold.begin();
    std::thread::scope(|scope| {
        for lane in 0..lanes as u64 {
            scope.spawn(move || {
                while let Some(shard) = fold.next_shard() {
                    let gradient = gradient(seed, step, shard, layout.slab());
                    for bucket in 0..layout.buckets() {
                        nap(mix(seed ^ step << 8 ^ u64::from(shard) ^ lane << 32));
                        let range = layout.start(bucket)..layout.start(bucket + 1);
                        fold.hand_in(shard, bucket, &gradient[range]).unwrap();
                    }
                }
            });
        }
        let mut out = Vec::new();
        let mut done = Vec::new();
        for bucket in 0..layout.buckets() {
            let parts = fold.wait(bucket, stop)?;
            let mut sum = fold.pool().take(bucket).unwrap();
            nap(mix(seed ^ u64::from(layout.rank()) << 20 ^ bucket as u64));
            transport.all_reduce(step, bucket, &parts, &mut sum)?;
            out.extend_from_slice(sum.region());
            done.extend(parts.into_iter().chain([sum]));
        }
        done.into_iter().for_each(|piece| fold.pool().give(piece));
        Ok(out)
    })
}
