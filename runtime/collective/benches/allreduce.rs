//! All-reduce through shared memory, ranks as threads: time and bandwidth by size of bucket, and
//! the round trip of reducing a few numbers. `cargo bench -p monarch-collective`
//!
//! Bus bandwidth is 2 (N - 1) / N times the bucket's bytes by the time of a call, as NCCL's tests
//! define it.

use monarch_collective::{
    CollectiveError, Fold, Layout, Pool, Scalars, Settings, SharedMemory, Stop, Transport,
    all_reduce_scalars, shm,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZES: [u64; 8] = [1 << 8, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];

fn main() -> Result<(), CollectiveError> {
    println!("{:>6} {:>10} {:>10} {:>10} {:>8}", "ranks", "bytes", "p50 us", "p99 us", "GB/s");
    for world in [2, 4] {
        for elements in SIZES {
            let calls = ((1u64 << 27) / elements).clamp(20, 2000) as usize;
            let times = measure(world, elements, |rank| reduce(rank, calls))?;
            show(world, elements * 4, times);
        }
        let times = measure(world, 16, |rank| numbers(rank, 2000))?;
        show(world, 0, times);
    }
    Ok(())
}

fn show(world: u32, bytes: u64, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64();
    let part = 2.0 * f64::from(world - 1) / f64::from(world);
    let rate = part * bytes as f64 / at(50) / 1e9;
    let (p50, p99) = (at(50) * 1e6, at(99) * 1e6);
    match bytes {
        0 => println!("{world:>6} {:>10} {p50:>10.1} {p99:>10.1}", "numbers"),
        _ => println!("{world:>6} {bytes:>10} {p50:>10.1} {p99:>10.1} {rate:>8.2}"),
    }
}

/// A rank with everything it needs.
struct Rank {
    transport: SharedMemory,
    fold: Fold,
}

/// Runs `work` on every rank; what rank 0 measured.
fn measure(
    world: u32,
    elements: u64,
    work: impl Fn(Rank) -> Result<Vec<Duration>, CollectiveError> + Sync,
) -> Result<Vec<Duration>, CollectiveError> {
    let (_file, path) = shm::create_file()?;
    let start = |rank| {
        let layout =
            Layout::new(&(0..world).collect::<Vec<_>>(), world, rank, &[(0, elements)], 0)?;
        let pool = Arc::new(Pool::shared(&layout, 1)?);
        let transport = SharedMemory::attach(&path, &layout, &pool, &Settings::default())?;
        work(Rank { transport, fold: Fold::new(layout, pool) })
    };
    std::thread::scope(|scope| {
        let peers: Vec<_> = (1..world)
            .map(|rank| {
                scope.spawn({
                    let start = &start;
                    move || start(rank)
                })
            })
            .collect();
        let times = start(0);
        for peer in peers {
            peer.join().map_err(|_| CollectiveError::Aborted)??;
        }
        times
    })
}

fn reduce(mut rank: Rank, calls: usize) -> Result<Vec<Duration>, CollectiveError> {
    let layout = rank.fold.layout().clone();
    let gradient = vec![1.0; layout.slab()];
    let mut times = Vec::with_capacity(calls);
    rank.fold.begin();
    while let Some(shard) = rank.fold.next_shard() {
        rank.fold.hand_in(shard, 0, &gradient)?;
    }
    let parts = rank.fold.wait(0, &Stop::new())?;
    let room = || CollectiveError::Layout("no room for the sum".into());
    let mut sum = rank.fold.pool().take(0).ok_or_else(room)?;
    for call in 0..calls as u64 {
        // Together, so that the time is of the call and not of waiting for a late rank.
        rank.transport.all_gather(call, &[])?;
        let start = Instant::now();
        rank.transport.all_reduce(call, 0, &parts, &mut sum)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn numbers(mut rank: Rank, calls: usize) -> Result<Vec<Duration>, CollectiveError> {
    let layout = rank.fold.layout().clone();
    let mine = Scalars { values: vec![vec![1.0, 2.0]], ..Scalars::default() };
    let mut times = Vec::with_capacity(calls);
    for call in 0..calls as u64 {
        let start = Instant::now();
        all_reduce_scalars(&mut rank.transport, &layout, call, &mine)?;
        times.push(start.elapsed());
    }
    Ok(times)
}
