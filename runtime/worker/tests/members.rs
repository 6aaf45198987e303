//! Members change: who stays keeps its weights, who comes receives them, and the numbers are those
//! of a run whose members never changed.

mod common;

use common::plan::{plan, write_data};
use common::*;
use monarch_collective::shm;
use monarch_graph::Plan;
use monarch_wire::*;

/// Edge at which the members change.
const EDGE: u64 = 5;
const END: u64 = 9;

fn links(way: Way, addresses: &[String]) -> (Links, Box<dyn Send>) {
    let (file, path) = shm::create_file().unwrap();
    let links = match way {
        _ if addresses.len() == 1 => Links::None,
        Way::Shared => Links::SharedMemory { path },
        Way::Quic => Links::Quic { peers: addresses.to_vec() },
    };
    (links, Box::new(file))
}

/// Reads on until the answer to `Halt`; how many steps were reported before it.
fn halted(rank: &Rank) -> (Halted, u64) {
    let mut steps = 0;
    loop {
        match rank.hear() {
            Some(FromWorker::Halted(halted)) => return (halted, steps),
            Some(FromWorker::Step(_)) => steps += 1,
            Some(FromWorker::Failed(failure)) => assert!(failure.lost_peer.is_some()),
            other => panic!("{other:?} instead of `Halted`"),
        }
    }
}

fn form(rank: u32, world: u32, links: &Links, holders: &[bool]) -> Form {
    let (generation, threads) = (1, 2);
    let (links, holders) = (links.clone(), holders.to_vec());
    let deal = monarch_graph::even_deal(8, world);
    let source = Source::Members;
    Form { generation, rank, world, threads, links, base: EDGE, holders, deal, source }
}

fn start(plan: &Plan, form: Form) -> ToWorker {
    let (run, resume) = ("test".to_string(), None);
    ToWorker::Start(Start { plan: plan.clone(), run, resume, first_step: 0, trace: vec![], form })
}

/// Runs to the end; the fingerprint there.
fn finish(ranks: &mut [Rank]) -> Vec<String> {
    ranks.iter().for_each(|r| r.say(ToWorker::Window(window(END, &[]))));
    ranks.iter().for_each(|r| r.say(ToWorker::Finish));
    let mut prints = Vec::new();
    for rank in ranks.iter_mut() {
        let mut step = EDGE;
        while let Some(message) = rank.hear() {
            match message {
                FromWorker::Step(report) => {
                    assert_eq!(report.step, step);
                    step += 1;
                }
                FromWorker::Finished(finished) => prints.push(finished.fingerprint),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(step, END);
        rank.join().unwrap();
    }
    prints
}

/// Runs three workers up to the edge, where the last one is lost; the two that are left.
fn two_of_three(plan: &Plan, way: Way) -> Vec<Rank> {
    let (mut ranks, _open) = Setup::new(plan.clone(), 3, 2, way).start();
    for rank in &ranks {
        assert!(matches!(rank.hear(), Some(FromWorker::Ready(_))));
    }
    for rank in &ranks {
        rank.say(ToWorker::Window(window(EDGE, &[])));
    }
    // The two go on alone, and are stuck in the next step.
    for (i, rank) in ranks.iter().enumerate() {
        (0..EDGE).for_each(|_| assert!(matches!(rank.hear(), Some(FromWorker::Step(_)))));
        if i < 2 {
            rank.say(ToWorker::Window(window(END, &[])));
        }
    }
    let mut lost = ranks.pop().unwrap();
    lost.to = None;
    assert!(lost.join().is_err());
    ranks
}

#[test]
fn who_stays_goes_on_and_who_comes_receives_the_weights() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let overlapping = [true, false];
    for (way, overlap) in
        [Way::Shared, Way::Quic].into_iter().flat_map(|w| overlapping.map(|o| (w, o)))
    {
        let plan = plan(&data, overlap);
        let want = Setup::new(plan.clone(), 1, 1, Way::Shared).run(&[window(END, &[])]);
        let want = want[0].finished.as_ref().unwrap().fingerprint.clone();
        for newcomers in [0, 1, 2] {
            let mut ranks = two_of_three(&plan, way);
            ranks.iter().for_each(|r| r.say(ToWorker::Halt { generation: 1 }));
            let mut addresses = Vec::new();
            for rank in &ranks {
                let (halted, steps) = halted(rank);
                assert_eq!((halted.generation, halted.done, steps), (1, Some(EDGE), 0));
                addresses.push(halted.peer_address);
            }
            for _ in 0..newcomers {
                let rank = Rank::start(ranks_config(way));
                addresses.push(rank.hello.peer_address.clone());
                ranks.push(rank);
            }
            // Those that come newly stand before those that have the weights.
            ranks.rotate_right(newcomers);
            addresses.rotate_right(newcomers);
            let world = ranks.len() as u32;
            let holders: Vec<bool> = (0..ranks.len()).map(|r| r >= newcomers).collect();
            let (links, _open) = links(way, &addresses);
            for (rank, worker) in (0..).zip(&ranks) {
                let form = form(rank, world, &links, &holders);
                worker.say(match holders[rank as usize] {
                    true => ToWorker::Form(form),
                    false => start(&plan, form),
                });
            }
            let mut prints = Vec::new();
            for rank in &ranks {
                let Some(FromWorker::Ready(ready)) = rank.hear() else { panic!("not ready") };
                prints.push(ready.fingerprint);
            }
            prints.dedup();
            // Where nobody had to receive anything, there is nothing to compare.
            assert_eq!((prints.len(), prints[0].is_empty()), (1, newcomers == 0));
            for print in finish(&mut ranks) {
                assert_eq!(print, want, "{way:?} overlap {overlap}, {newcomers} newcomers");
            }
        }
    }
}

/// A second change before the first is complete: only the last one counts.
#[test]
fn members_that_change_while_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let plan = plan(&data, true);
    let mut ranks = two_of_three(&plan, Way::Shared);
    ranks.iter().for_each(|r| r.say(ToWorker::Halt { generation: 1 }));
    ranks.iter().for_each(|r| assert_eq!(halted(r).0.done, Some(EDGE)));
    // A third that never comes is waited for, until the members change again.
    let (links, _open) = links(Way::Shared, &[String::new(), String::new(), String::new()]);
    for (rank, worker) in (0..).zip(&ranks) {
        worker.say(ToWorker::Form(form(rank, 3, &links, &[true, true, true])));
    }
    ranks.iter().for_each(|r| r.say(ToWorker::Halt { generation: 2 }));
    for rank in &ranks {
        let (halted, _) = halted(rank);
        assert_eq!((halted.generation, halted.done), (2, Some(EDGE)));
    }
    let mut alone = ranks.remove(0);
    alone.say(ToWorker::Form(Form { generation: 2, ..form(0, 1, &Links::None, &[true]) }));
    assert!(matches!(alone.hear(), Some(FromWorker::Ready(_))));
    let want = Setup::new(plan, 1, 1, Way::Shared).run(&[window(END, &[])]);
    let want = want[0].finished.as_ref().unwrap().fingerprint.clone();
    assert_eq!(finish(std::slice::from_mut(&mut alone)), [want]);
}

/// Members change before one that has just come knows of its place: it stays.
#[test]
fn a_newcomer_that_is_halted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let plan = plan(&data, true);
    let (links, _open) = links(Way::Shared, &[String::new(), String::new()]);
    for _ in 0..50 {
        let mut rank = Rank::start(ranks_config(Way::Shared));
        rank.say(start(&plan, form(1, 2, &links, &[true, false])));
        rank.say(ToWorker::Halt { generation: 2 });
        let (halted, _) = halted(&rank);
        assert_eq!((halted.generation, halted.done), (2, None));
        rank.to = None;
        assert!(rank.join().is_err());
    }
}
