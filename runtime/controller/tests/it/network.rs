//! The same over QUIC: real sockets, real keys.

use crate::fake::{Fakes, Trick, hello, print_at};
use crate::plan::plan;
use crate::{config, observe, warnings};
use monarch_controller::{Network, RunEvent, control, measure, run};
use monarch_net::{ClientEvent, ClusterKey, ControlClient, Identity, Options, Role};
use monarch_wire::*;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

/// A worker on the other side of a socket. Returns how its link ended.
fn join(address: SocketAddr, key: &ClusterKey, job: [u8; 32], trick: Trick) -> JoinHandle<String> {
    let key = key.clone();
    std::thread::spawn(move || {
        let identity = Identity::new(&key, Role::Worker);
        let limit = Duration::from_secs(5);
        let address = address.to_string();
        match ControlClient::connect(&address, &identity, &Options::default(), limit) {
            Ok((client, receiver)) => live(&client, &receiver, job, &trick),
            Err(error) => error.to_string(),
        }
    })
}

fn live(
    client: &ControlClient,
    inbox: &Receiver<ClientEvent>,
    job: [u8; 32],
    trick: &Trick,
) -> String {
    let say = |message: FromWorker| drop(client.send(encode(&message).unwrap()));
    say(FromWorker::Hello(hello(None, job, trick)));
    let (mut plan, mut step) = (None, 0);
    loop {
        let message = match inbox.recv().unwrap() {
            ClientEvent::Frame(bytes) => decode::<ToWorker>(&bytes).unwrap(),
            ClientEvent::Closed(lost) => return lost.to_string(),
        };
        match message {
            ToWorker::Start(start) => {
                let fingerprint = print_at(&start.plan, 0);
                let (bytes, isa, threads) = (1, "scalar".to_string(), start.form.threads);
                let generation = 0;
                say(FromWorker::Ready(Ready { generation, fingerprint, bytes, isa, threads }));
                plan = Some(start.plan);
            }
            ToWorker::Window(window) => {
                while step < window.until {
                    say(FromWorker::Step(StepReport {
                        step,
                        epoch: 0,
                        samples: 8,
                        loss: 1.0,
                        grad_norm: 1.0,
                        lr: 1.0,
                        phases: Phases { total_ns: 1_000_000, ..Phases::default() },
                        spans: Vec::new(),
                        trouble: None,
                    }));
                    step += 1;
                }
            }
            ToWorker::Ping(number) => say(FromWorker::Pong(number)),
            ToWorker::Skip { .. } => step += 1,
            ToWorker::Finish => {
                let fingerprint = print_at(plan.as_ref().unwrap(), step);
                say(FromWorker::Finished(Finished { step, fingerprint }));
            }
            ToWorker::Refused { why } => return why,
            ToWorker::Abort { why } => return why,
            ToWorker::Halt { .. }
            | ToWorker::Form(_)
            | ToWorker::Release
            | ToWorker::Adopted(_) => {
                return "its members change".into();
            }
        }
    }
}

fn networked(dir: &std::path::Path, steps: u64, workers: u32) -> monarch_controller::RunConfig {
    let mut plan = plan(steps);
    plan.evals.clear();
    plan.eval_every = None;
    let mut config = config(dir, plan, workers);
    config.save_at_end = false;
    let key = ClusterKey::generate().unwrap();
    config.network = Some(Network {
        listen: "127.0.0.1:0".into(),
        key,
        patience: monarch_controller::PATIENCE_AFAR,
    });
    config
}

#[test]
fn workers_come_by_themselves_and_strangers_are_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let config = networked(dir.path(), 50, 2);
    let key = config.network.as_ref().unwrap().key.clone();
    let other = ClusterKey::generate().unwrap();
    let job = config.job_hash;
    let (tell, addresses) = std::sync::mpsc::channel::<SocketAddr>();
    let coming = std::thread::spawn(move || {
        let address = addresses.recv().unwrap();
        let end = |key, trick| join(address, key, job, trick).join().unwrap();
        end(&other, Trick::None);
        let version = end(&key, Trick::OtherVersion);
        assert!(version.contains("9.9.9"), "{version}");
        let another = end(&key, Trick::OtherJob);
        assert!(another.contains("was started for job 0909"), "{another}");
        let workers = [0, 1].map(|_| join(address, &key, job, Trick::None));
        workers.map(|w| w.join().unwrap())
    });
    let (result, events) = observe(&config, &mut Fakes::new(0), |event, _| {
        if let RunEvent::Listening { address } = event {
            tell.send(*address).unwrap();
        }
    });
    assert_eq!(result.unwrap().steps, 50);
    let ends = coming.join().unwrap();
    assert!(ends.iter().all(|e| e.contains("the run is over")), "{ends:?}");
    let warned = warnings(&events).join("\n");
    assert!(warned.contains("9.9.9") && warned.contains("another cluster key"), "{warned}");
}

#[test]
fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = networked(dir.path(), 5, 1);
    let address = socket.local_addr().unwrap().to_string();
    if let Some(network) = &mut config.network {
        network.listen = address.clone();
    }
    let (_handle, inbox) = control();
    let error = run(&config, &mut Fakes::new(0), &mut |_: &RunEvent| {}, inbox).unwrap_err();
    assert_eq!(error.code, 4);
    assert!(error.message.contains(&address), "{error}");
}

#[test]
fn a_worker_whose_connection_breaks_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = networked(dir.path(), 1_000_000, 2);
    let key = config.network.as_ref().unwrap().key.clone();
    let job = config.job_hash;
    let mut threads = Vec::new();
    let (result, _) = observe(&config, &mut Fakes::new(0), |event, _| {
        if let RunEvent::Listening { address } = event {
            threads.push(join(*address, &key, job, Trick::None));
            let (address, key) = (*address, key.clone());
            threads.push(std::thread::spawn(move || {
                let identity = Identity::new(&key, Role::Worker);
                let (limit, at) = (Duration::from_secs(5), address.to_string());
                let (client, inbox) =
                    ControlClient::connect(&at, &identity, &Options::default(), limit).unwrap();
                let hello = FromWorker::Hello(hello(None, job, &Trick::None));
                client.send(encode(&hello).unwrap()).unwrap();
                let _ = inbox.recv();
                client.close("pulled the plug");
                String::new()
            }));
        }
    });
    let error = result.unwrap_err();
    assert!(error.message.contains("pulled the plug"), "{error}");
    threads.into_iter().for_each(|t| drop(t.join().unwrap()));
}

/// What a launcher of the command line does, with threads for processes.
struct Joining(u32);

impl monarch_controller::Launcher for Joining {
    fn launch(
        &mut self,
        seat: &monarch_controller::Seat,
    ) -> std::io::Result<Box<dyn monarch_controller::Child>> {
        let (address, key) = (seat.address.unwrap(), seat.key.clone().unwrap());
        Ok(Box::new(Thread(join(address, &key, seat.job_hash, Trick::None))))
    }
    fn count(&self) -> u32 {
        self.0
    }
}

struct Thread(JoinHandle<String>);

impl monarch_controller::Child for Thread {
    fn try_wait(&mut self) -> Option<monarch_controller::ChildExit> {
        let text = "exit code 0".to_string();
        self.0.is_finished().then_some(monarch_controller::ChildExit {
            text,
            signal: None,
            clean: true,
        })
    }
    fn kill(&mut self) {}
    fn stderr_tail(&self) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn round_trips_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let measured = measure(networked(dir.path(), 5, 2), &mut Joining(2), 200).unwrap();
    let mut trips = measured.round_trips_ns;
    assert_eq!(trips.len(), 200);
    trips.sort_unstable();
    eprintln!("round trip p50 {} us, p99 {} us", trips[100] / 1000, trips[197] / 1000);
}
