//! A rank that is missing, dead, gone, or at another place is an error, never a hang.

mod common;

use common::*;
use monarch_collective::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BUCKETS: &[(u64, u64)] = &[(0, 64), (64, 1024)];

fn layout(world: u32, rank: u32) -> Layout {
    Layout::new(&monarch_graph::even_deal(8, world), world, rank, BUCKETS, 0).unwrap()
}

fn shared(layout: &Layout) -> Arc<Pool> {
    Arc::new(Pool::shared(layout, 1).unwrap())
}

/// All shards of ones into one bucket, then its reduction.
fn reduce(
    transport: &mut dyn Transport,
    layout: &Layout,
    pool: Arc<Pool>,
    (step, bucket): (u64, usize),
) -> Result<(), CollectiveError> {
    let fold = Fold::new(layout.clone(), pool);
    let ones = vec![1.0; layout.elements(bucket)];
    while let Some(shard) = fold.next_shard() {
        fold.hand_in(shard, bucket, &ones).unwrap();
    }
    let parts = fold.wait(bucket, &Stop::new()).unwrap();
    let mut sum = fold.pool().take(bucket).unwrap();
    transport.all_reduce(step, bucket, &parts, &mut sum)
}

/// Runs `act` on every rank with its transport; returns what each says.
fn ranks<T: Send>(
    kind: Kind,
    world: u32,
    settings: &Settings,
    act: impl Fn(u32, &mut dyn Transport, Arc<Pool>) -> T + Sync,
) -> Vec<T> {
    let (_file, path) = shm::create_file().unwrap();
    std::thread::scope(|scope| {
        let run = |(rank, bulk)| {
            let (path, act) = (&path, &act);
            scope.spawn(move || {
                let layout = layout(world, rank);
                let (mut transport, pool) = open(kind, path, bulk, &layout, 1, settings).unwrap();
                act(rank, &mut *transport, pool)
            })
        };
        let all: Vec<_> = (0..).zip(memory_mesh(world)).map(run).collect();
        all.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

#[test]
fn a_rank_that_never_comes_is_named_in_time() {
    for kind in [Kind::Shared, Kind::Messages] {
        let settings = Settings { patience: Duration::from_millis(200), ..Settings::default() };
        let start = Instant::now();
        let said = ranks(kind, 3, &settings, |rank, transport, pool| {
            if rank == 1 {
                std::thread::sleep(Duration::from_millis(600));
                return None;
            }
            let result = reduce(transport, &layout(3, rank), pool, (0, 0));
            Some((start.elapsed(), result.unwrap_err()))
        });
        let mut timeouts = 0;
        for (waited, error) in said.into_iter().flatten() {
            assert!(waited < Duration::from_millis(500), "{waited:?}");
            match &error {
                CollectiveError::Timeout { missing, .. } => {
                    assert!(missing.contains(&1), "{error}");
                    timeouts += 1;
                }
                // The other survivor may have given up first.
                CollectiveError::PeerLost { rank, .. } => assert_ne!(*rank, 1, "{error}"),
                _ => panic!("{kind:?}: {error}"),
            }
        }
        assert!(timeouts > 0);
    }
}

#[test]
fn a_rank_that_leaves_is_noticed_at_once() {
    for kind in [Kind::Shared, Kind::Messages] {
        let said = ranks(kind, 2, &Settings::default(), |rank, transport, pool| {
            if rank == 1 {
                std::thread::sleep(Duration::from_millis(30));
                return None;
            }
            let start = Instant::now();
            let result = reduce(transport, &layout(2, rank), pool, (0, 1));
            Some((start.elapsed(), result.unwrap_err()))
        });
        let (waited, error) = said.into_iter().flatten().next().unwrap();
        assert_eq!(error.lost_peer(), Some(1), "{kind:?}: {error}");
        assert!(waited < Duration::from_millis(500), "{waited:?}");
    }
}

#[test]
fn stop_ends_a_wait_within_milliseconds() {
    for kind in [Kind::Shared, Kind::Messages] {
        let settings = Settings::default();
        let said = ranks(kind, 2, &settings, |rank, transport, pool| {
            if rank == 1 {
                std::thread::sleep(Duration::from_millis(50));
                let set = Instant::now();
                settings.stop.set();
                std::thread::sleep(Duration::from_millis(700));
                return Ok(set);
            }
            let result = reduce(transport, &layout(2, rank), pool, (0, 0));
            Err((Instant::now(), result.unwrap_err()))
        });
        let set = *said[1].as_ref().unwrap();
        let (ended, error) = said[0].as_ref().unwrap_err();
        assert!(matches!(error, CollectiveError::Aborted), "{error}");
        assert!(*ended - set < Duration::from_millis(500), "{:?}", *ended - set);
    }
}

#[test]
fn ranks_at_different_places_are_told_so() {
    for kind in [Kind::Shared, Kind::Messages] {
        let said = ranks(kind, 2, &Settings::default(), |rank, transport, pool| {
            let step = u64::from(rank);
            let result = reduce(transport, &layout(2, rank), pool, (step, 0)).unwrap_err();
            // The other must see it for itself, not only our leaving.
            std::thread::sleep(Duration::from_millis(50));
            result
        });
        for error in said {
            assert!(matches!(error, CollectiveError::Mismatch { .. }), "{kind:?}: {error}");
            let text = error.to_string();
            assert!(text.contains("step 0") && text.contains("step 1"), "{text}");
        }
    }
}

#[test]
fn another_job_cannot_attach() {
    let (_file, path) = shm::create_file().unwrap();
    let settings = Settings { attach: Duration::from_millis(100), ..Settings::default() };
    let first = SharedMemory::attach(&path, &layout(2, 0), &shared(&layout(2, 0)), &settings);
    assert!(matches!(first, Err(CollectiveError::Timeout { .. })));
    let other = Layout::new(&[0, 0, 0, 0, 1, 1, 1, 1], 2, 1, BUCKETS, 99).unwrap();
    let second = SharedMemory::attach(&path, &other, &shared(&other), &settings);
    assert!(matches!(second, Err(CollectiveError::Mismatch { .. })));
}

#[test]
fn a_killed_process_is_noticed() {
    let args: Vec<String> = std::env::args().collect();
    if let Ok(path) = std::env::var("MONARCH_TEST_SHARED") {
        let settings = Settings::default();
        let attached =
            SharedMemory::attach(&path, &layout(2, 1), &shared(&layout(2, 1)), &settings);
        std::thread::sleep(Duration::from_secs(60));
        drop(attached);
        return;
    }
    let (_file, path) = shm::create_file().unwrap();
    let mut child = std::process::Command::new(&args[0])
        .args(["--exact", "a_killed_process_is_noticed", "--test-threads=1"])
        .env("MONARCH_TEST_SHARED", &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let layout = layout(2, 0);
    let pool = shared(&layout);
    let mut memory = SharedMemory::attach(&path, &layout, &pool, &Settings::default()).unwrap();
    child.kill().unwrap();
    // It stays a zombie until `wait`: the hardest case.
    let start = Instant::now();
    let error = reduce(&mut memory, &layout, pool, (0, 0)).unwrap_err();
    assert_eq!(error.lost_peer(), Some(1), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    child.wait().unwrap();
}
