//! `monarch worker --join HOST:PORT`: works for a controller.

use super::lifeline::{Lifeline, wake_on_end};
use super::progress::eprint_line;
use super::verbs::{Group, Takes, Verb};
use super::{Failure, args, out, signals, text};
use clap::{Arg, ArgMatches, Command, value_parser};
use monarch::front;
use monarch_check::ParamHelp;
use monarch_controller::{PATIENCE_AFAR, PATIENCE_HERE};
use monarch_net::{ClusterKey, ConnectError, Identity, Options, Role};
use monarch_plan::Facts;
use monarch_worker::{Config, Leave, Parting, PeerSettings};
use std::io::{BufRead, Read};
use std::path::Path;
use std::time::Duration;

/// How long a worker that was started here tries to reach its controller, which is there.
const CONNECT: Duration = Duration::from_secs(10);
/// How long one from elsewhere waits for the first sign of its controller, unless it is told to
/// wait: a wrong address is told of while the person who wrote it still looks.
const ANSWER: Duration = Duration::from_millis(1500);
/// The longest that `--wait` allows.
const WAIT_MOST: Duration = Duration::from_secs(7 * 24 * 3600);
/// A worker that is told to leave, or has waited long enough, ends at the latest after this.
const GRACE: Duration = Duration::from_secs(1);
/// How long a worker waits for its controller to be started again.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub const VERB: Verb = Verb {
    name: "worker",
    about: "Works for a controller on this or another machine",
    group: Group::Machines,
    takes: Takes::MaybeProgram,
    examples: &[
        ("monarch worker --join gpu01:7000 --key cluster.key", ""),
        ("monarch worker job.mon --join ..", "refuse any other job"),
    ],
    options,
    run: worker,
};

fn options(command: Command) -> Command {
    let slot = Arg::new("slot").long("slot").hide(true).value_parser(value_parser!(u32));
    command
        .mut_arg("program", |a| a.help("Insist on this program being the job"))
        .arg(args::text("join", "HOST:PORT", "The controller's address").required(true))
        .arg(args::text("key", "FILE", "The cluster's key"))
        .arg(args::text(
            "listen",
            "ADDR",
            "Where other workers reach this one [default: like --join]",
        ))
        .arg(args::text(
            "advertise",
            "HOST[:PORT]",
            "What other workers are told instead, where addresses are translated on the way",
        ))
        .arg(
            args::text("wait", "TIME", "How long the controller may take to appear, as 30s or 5m")
                .value_parser(waiting),
        )
        .arg(
            args::text(
                "patience",
                "TIME",
                "How long to wait for a killed controller to be started again [default: 10s]",
            )
            .value_parser(patience),
        )
        .arg(slot)
}

fn worker(matches: &ArgMatches, params: &[ParamHelp]) -> Result<(), Failure> {
    let address = text(matches, "join").unwrap_or_default();
    let slot = matches.get_one::<u32>("slot").copied();
    let (key, job) = match slot {
        Some(_) => from_parent()?,
        None => (key_file(matches)?, job(matches, params)?),
    };
    let asked = matches.get_one::<Duration>("wait").copied();
    let limit = asked.unwrap_or(if slot.is_some() { CONNECT } else { ANSWER });
    let listen = match text(matches, "listen") {
        Some(listen) => listen.to_string(),
        None => beside(address, limit)?,
    };
    let peers = PeerSettings {
        identity: Identity::new(&key, Role::Worker),
        options: Options::bulk(),
        listen,
        advertise: text(matches, "advertise").map(str::to_string),
    };
    let identity = Identity::new(&key, Role::Worker);
    // One that was started here notices its controller's death by other signs.
    let idle_timeout = if slot.is_some() { PATIENCE_HERE } else { PATIENCE_AFAR };
    let options = Options { idle_timeout, ..Options::default() };
    let mut way = Lifeline::new(address, identity, options);
    way.patience = matches.get_one::<Duration>("patience").copied().unwrap_or(PATIENCE);
    (way.grace, way.is_guest) = (GRACE, slot.is_none());
    if slot.is_some() {
        watch_parent(way.is_connected(), way.ended())?;
    }
    let link = way.first(limit).map_err(unreachable)?;
    let leave = Leave::default();
    let unheard = |e| Failure::run(format!("cannot listen to signals: {e}"));
    // Until here nobody counts on this worker, and a signal ends it as it ends any process.
    signals::leave(leave.clone()).map_err(unheard)?;
    let config = Config { slot, job, peers: Some(peers), grace: Some(GRACE), leave };
    match monarch_worker::run_again(link, config, Some(Box::new(way))) {
        Ok(Parting::Finished) => Ok(()),
        Ok(Parting::Released) => {
            eprint_line("this worker has left the run; the others go on without it");
            Ok(())
        }
        Err(error) => Err(Failure::run(error.to_string())),
    }
}

fn unreachable(error: ConnectError) -> Failure {
    Failure { code: 4, message: error.to_string() }
}

/// The key, and the hash of the job that this worker insists on.
type Secrets = (ClusterKey, Option<[u8; 32]>);

/// A worker that a controller started reads its secrets from standard input.
fn from_parent() -> Result<Secrets, Failure> {
    let none =
        |e: &dyn std::fmt::Display| Failure::run(format!("no key came from the controller: {e}"));
    let mut input = std::io::stdin().lock();
    // Should this process be stopped by then, it must go on to see that its controller is gone.
    wake_on_end(&input).map_err(|e| none(&e))?;
    let mut line = String::new();
    input.by_ref().take(4_096).read_line(&mut line).map_err(|e| none(&e))?;
    let mut words = line.split_whitespace();
    let key = ClusterKey::parse(words.next().unwrap_or_default()).map_err(|e| none(&e))?;
    Ok((key, words.next().and_then(parse_hash)))
}

/// Whatever more is said on standard input means that this worker shall leave; its end without a
/// word, that the controller is gone. Before this worker has reached it, there is nothing to be
/// left in good order.
fn watch_parent(
    is_connected: impl Fn() -> bool + Send + 'static,
    ended: impl Fn() + Send + 'static,
) -> Result<(), Failure> {
    let watch = move || {
        let mut rest = [0; 64];
        let leave = std::io::stdin().lock().read(&mut rest).is_ok_and(|n| n > 0);
        if is_connected() && !leave {
            return ended();
        }
        if is_connected() {
            std::thread::sleep(GRACE);
        }
        std::process::exit(1);
    };
    let thread = std::thread::Builder::new().name("parent".into()).stack_size(64 << 10);
    thread.spawn(watch).map(drop).map_err(|e| Failure::run(format!("cannot start a thread: {e}")))
}

fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(hash)
}

fn key_file(matches: &ArgMatches) -> Result<ClusterKey, Failure> {
    let missing = "a worker needs the cluster's key: --key FILE, the file that `monarch key` made";
    let file = text(matches, "key").ok_or_else(|| Failure::wrong(missing))?;
    ClusterKey::from_file(file).map_err(|e| Failure::wrong(e.to_string()))
}

/// Hash of the program, where one was named.
fn job(matches: &ArgMatches, params: &[ParamHelp]) -> Result<Option<[u8; 32]>, Failure> {
    let Some(path) = text(matches, "program") else { return Ok(None) };
    let given = args::overrides(matches, params);
    let job = front::plan(Path::new(path), &given, args::reserved(), |_| Facts::default())
        .map_err(|findings| out::wrong_program(&findings, false))?;
    Ok(Some(job.hash))
}

/// A time, or `0`: not at all.
pub fn patience(given: &str) -> Result<Duration, String> {
    match given {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        given => waiting(given),
    }
}

/// `30s`, `5m`, `500ms`.
fn waiting(given: &str) -> Result<Duration, String> {
    let digits = given.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match given.get(digits.len()..) {
        Some("ms") => 1,
        Some("s") => 1_000,
        Some("m" | "min") => 60_000,
        Some("h") => 3_600_000,
        _ => return Err("write a number and a unit, as 500ms, 30s, 5m or 1h".into()),
    };
    let number = digits.parse::<u64>().map_err(|_| "write a whole number, as 30s".to_string())?;
    let wait = Duration::from_millis(number.saturating_mul(unit_ms));
    if wait.is_zero() || wait > WAIT_MOST {
        return Err("it must be above 0 and at most a week".into());
    }
    Ok(wait)
}

/// The address of this machine on the way to the controller: there its peers reach it, too.
fn beside(controller: &str, limit: Duration) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure {
        code: 4,
        message: format!("the controller's address `{controller}` leads nowhere: {e}"),
    };
    let found = monarch_net::lookup(controller, limit);
    let found = found.map_err(|e| Failure { code: 4, message: e.to_string() })?;
    let Some(target) = found.first() else {
        let message = format!("`{controller}` has no address");
        return Err(Failure { code: 4, message });
    };
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    // Connecting a datagram socket sends nothing; it asks for the route.
    let socket = std::net::UdpSocket::bind(any).map_err(failed)?;
    socket.connect(target).map_err(failed)?;
    let mut local = socket.local_addr().map_err(failed)?;
    local.set_port(0);
    Ok(local.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes() {
        assert_eq!(parse_hash(&"0a".repeat(32)), Some([10; 32]));
        assert_eq!(parse_hash("0a"), None);
        assert_eq!(parse_hash(&"é".repeat(32)), None);
    }

    #[test]
    fn times_to_wait() {
        assert_eq!(waiting("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(waiting("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["", "5", "s", "-1s", "1.5s", "0s", "9999999999999999h", "5 s", "5d", "5é"] {
            assert!(waiting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_way_to_loopback_is_loopback() {
        let beside = |address| beside(address, CONNECT);
        assert_eq!(beside("127.0.0.1:9").ok().as_deref(), Some("127.0.0.1:0"));
        assert!(beside("no.such.host.invalid:1").is_err());
    }
}
