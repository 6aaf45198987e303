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
            Some(FromWorker::Failed(failure)) => {
                assert!(failure.lost_peer.is_some(), "{failure:?}")
            }
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
    let (plan, trace) = (plan.clone(), vec![]);
    ToWorker::Start(Start { plan, run, resume, first_step: 0, trace, incarnation: 1, form })
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

/// What the two that are left have computed of the step at hand is not computed again, and the
/// members may change twice before the step comes to its end.
#[test]
fn partial_sums_are_kept_until_the_step_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let mut kept_at_all = 0;
    for (way, overlap) in [(Way::Shared, true), (Way::Quic, true), (Way::Shared, false)] {
        let plan = plan(&data, overlap);
        let want = Setup::new(plan.clone(), 1, 1, Way::Shared).run(&[window(END, &[])]);
        let want = want[0].finished.as_ref().unwrap().fingerprint.clone();
        for rounds in [1, 2] {
            let mut ranks = two_of_three(&plan, way);
            let mut said = Vec::new();
            for generation in 1..=rounds {
                ranks.iter().for_each(|r| r.say(ToWorker::Halt { generation }));
                said = ranks.iter().map(|rank| halted(rank).0).collect();
                let addresses: Vec<_> = said.iter().map(|h| h.peer_address.clone()).collect();
                let (links, open) = links(way, &addresses);
                for (rank, worker) in (0..).zip(&ranks) {
                    // Each keeps its own; those of the third go to both.
                    let deal = vec![0, 0, 0, 1, 1, 1, 0, 1];
                    let form = form(rank, 2, &links, &[true, true]);
                    worker.say(ToWorker::Form(Form { generation, deal, ..form }));
                }
                for rank in &ranks {
                    assert!(matches!(rank.hear(), Some(FromWorker::Ready(_))));
                }
                drop(open);
            }
            let kept: usize = said.iter().map(|h| h.kept.len()).sum();
            kept_at_all += kept;
            ranks.iter().for_each(|r| r.say(ToWorker::Window(window(EDGE + 1, &[]))));
            let mut computed = 0;
            for rank in &ranks {
                let Some(FromWorker::Step(report)) = rank.hear() else { panic!("no step") };
                computed += report.phases.shards as usize;
            }
            assert_eq!(computed + kept, 8, "{way:?} overlap {overlap}: {said:?}");
            ranks.iter().for_each(|r| r.say(ToWorker::Window(window(END, &[]))));
            ranks.iter().for_each(|r| r.say(ToWorker::Finish));
            for rank in &mut ranks {
                let mut print = None;
                while let Some(message) = rank.hear() {
                    match message {
                        FromWorker::Step(report) => assert_eq!(report.phases.shards, 4),
                        FromWorker::Finished(finished) => print = Some(finished.fingerprint),
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(print.as_ref(), Some(&want), "{way:?} overlap {overlap}");
                rank.join().unwrap();
            }
        }
    }
    assert!(kept_at_all > 0);
}

/// Who comes without a shard receives the weights while the others compute, and makes the update.
#[test]
fn weights_are_copied_under_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    for (way, overlap) in [(Way::Shared, true), (Way::Quic, true), (Way::Quic, false)] {
        let plan = plan(&data, overlap);
        let want = Setup::new(plan.clone(), 1, 1, Way::Shared).run(&[window(END, &[])]);
        let want = want[0].finished.as_ref().unwrap().fingerprint.clone();
        let mut ranks = two_of_three(&plan, way);
        ranks.iter().for_each(|r| r.say(ToWorker::Halt { generation: 1 }));
        let mut addresses: Vec<_> = ranks.iter().map(|r| halted(r).0.peer_address).collect();
        let newcomer = Rank::start(ranks_config(way));
        addresses.insert(0, newcomer.hello.peer_address.clone());
        ranks.insert(0, newcomer);
        let (links, _open) = links(way, &addresses);
        let deal = vec![1, 1, 1, 2, 2, 2, 1, 2];
        for (rank, worker) in (0..).zip(&ranks) {
            let form = form(rank, 3, &links, &[false, true, true]);
            let form = Form { deal: deal.clone(), ..form };
            worker.say(if rank == 0 { start(&plan, form) } else { ToWorker::Form(form) });
        }
        for rank in &ranks {
            let Some(FromWorker::Ready(ready)) = rank.hear() else { panic!("not ready") };
            assert_eq!(ready.fingerprint, "", "nobody waits for the weights");
        }
        for print in finish(&mut ranks) {
            assert_eq!(print, want, "{way:?} overlap {overlap}");
        }
    }
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

/// The work at hand is dropped, and that is all: the lanes do as well as before in the next
/// generation, however often that happens.
#[test]
fn an_evaluation_that_is_dropped_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let plan = plan(&data, true);
    let alone = Setup::new(plan.clone(), 1, 2, Way::Shared);
    let want = alone.run(&[window(END, &[])])[0].finished.as_ref().unwrap().fingerprint.clone();
    let (mut ranks, _open) = alone.start();
    let rank = &ranks[0];
    assert!(matches!(rank.hear(), Some(FromWorker::Ready(_))));
    rank.say(ToWorker::Window(window(EDGE, &[])));
    (0..EDGE).for_each(|_| assert!(matches!(rank.hear(), Some(FromWorker::Step(_)))));
    for generation in 1..=50 {
        // So many that the order to halt comes in the middle of one of them.
        let many = vec![(EDGE, DueKind::Evaluate(0)); 100_000];
        rank.say(ToWorker::Window(window(EDGE, &many)));
        assert!(matches!(rank.hear(), Some(FromWorker::Evaluated(_))));
        rank.say(ToWorker::Halt { generation });
        loop {
            match rank.hear() {
                Some(FromWorker::Evaluated(_)) => {}
                Some(FromWorker::Halted(_)) => break,
                other => panic!("{other:?} instead of `Halted`"),
            }
        }
        let form = form(0, 1, &Links::None, &[true]);
        rank.say(ToWorker::Form(Form { generation, ..form }));
        assert!(matches!(rank.hear(), Some(FromWorker::Ready(_))));
    }
    assert_eq!(finish(&mut ranks), [want]);
}

/// Members change while a worker whose port is fixed still waits for the others.
#[test]
fn a_fixed_port_outlives_a_mesh_that_never_forms() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.safetensors");
    write_data(&data, None);
    let plan = plan(&data, true);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = ranks_config(Way::Quic);
    config.peers.as_mut().unwrap().listen = free.to_string();
    let mut rank = Rank::start(config);
    let peers = vec![silent.local_addr().unwrap().to_string(), rank.hello.peer_address.clone()];
    let form = Form { base: 0, ..form(1, 2, &Links::Quic { peers }, &[false, false]) };
    rank.say(start(&plan, Form { generation: 0, ..form.clone() }));
    for generation in 1..4 {
        // It is asked for while the mesh is being formed, or a little earlier.
        std::thread::sleep(std::time::Duration::from_millis(20 * generation));
        rank.say(ToWorker::Halt { generation });
        let (halted, _) = halted(&rank);
        assert_eq!((halted.generation, halted.peer_address), (generation, free.to_string()));
        rank.say(ToWorker::Form(Form { generation, ..form.clone() }));
    }
    rank.say(ToWorker::Abort { why: "enough".into() });
    assert!(rank.join().is_err());
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
    for _ in 0..50 {
        // It may have taken its place in there when it hears of the halt.
        let (links, _open) = links(Way::Shared, &[String::new(), String::new()]);
        let mut rank = Rank::start(ranks_config(Way::Shared));
        rank.say(start(&plan, form(1, 2, &links, &[true, false])));
        rank.say(ToWorker::Halt { generation: 2 });
        let (halted, _) = halted(&rank);
        assert_eq!((halted.generation, halted.done), (2, None));
        rank.to = None;
        assert!(rank.join().is_err());
    }
}
