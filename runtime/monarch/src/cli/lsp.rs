//! `monarch lsp`: the language server protocol over standard input and output.
//!
//! Invariants
//! - What editors show is worked out by `monarch-ide`; here is only the protocol.
//! - Messages are taken in order; the newest text wins: diagnostics are given for what is there
//!   when no more messages wait, and a request that was cancelled while it waited is not worked on.
//! - Nothing that a client sends ends the server but `exit`, the end of the stream, and the end of
//!   the process that started it. A message is at most [`frame::MAX_BYTES`] long.

mod answer;
mod convert;
mod docs;
mod frame;
mod overlay;
mod server;

use super::Failure;
use super::args::flag;
use super::verbs::{Group, Takes, Verb};
use clap::{ArgMatches, Command};
use monarch_check::ParamHelp;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

pub const VERB: Verb = Verb {
    name: "lsp",
    about: "Serves editors: the language server protocol on standard input and output",
    group: Group::Write,
    takes: Takes::Words,
    examples: &[("monarch lsp", "started by an editor, not by hand")],
    options,
    run: lsp,
};

/// How long the keyboard must rest before a text is checked.
const REST: Duration = Duration::from_millis(25);
/// Messages that may wait; a client that sends more waits itself.
const WAITING: usize = 256;

fn options(command: Command) -> Command {
    command.arg(flag("stdio", "What editors add; there is no other way"))
}

/// What the reading thread hands over.
enum Event {
    Message(Value),
    /// Something that is no message, and why.
    Malformed(String),
    /// The stream has ended.
    End,
}

fn lsp(_: &ArgMatches, _: &[ParamHelp]) -> Result<(), Failure> {
    let (sender, receiver) = sync_channel(WAITING);
    let reader = move || {
        let mut input = BufReader::new(std::io::stdin().lock());
        loop {
            let event = match frame::read(&mut input) {
                Ok(frame::Read::Message(message)) => Event::Message(message),
                Ok(frame::Read::Malformed(why)) => Event::Malformed(why),
                Ok(frame::Read::End) | Err(_) => Event::End,
            };
            let end = matches!(event, Event::End);
            if sender.send(event).is_err() || end {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("reader".into()).spawn(reader);
    thread.map_err(|e| Failure::run(format!("no thread to read with: {e}")))?;
    match serve(&receiver) {
        true => Ok(()),
        // A client that goes without `shutdown` is told so by the code alone.
        false => Err(Failure { code: 1, message: String::new() }),
    }
}

/// Answers until the end; whether it was an orderly one.
fn serve(receiver: &Receiver<Event>) -> bool {
    let mut server = server::Server::new(Box::new(send));
    let mut waiting: VecDeque<Event> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            let next = match server.is_dirty() {
                true => receiver.recv_timeout(REST),
                false => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(event) => waiting.push_back(event),
                Err(RecvTimeoutError::Timeout) => {
                    server.publish();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return server.is_shut_down(),
            }
        }
        while let Ok(event) = receiver.try_recv() {
            waiting.push_back(event);
        }
        cancel(&mut server, &mut waiting);
        match waiting.pop_front() {
            Some(Event::Message(message)) => {
                if let Some(orderly) = server.take(message) {
                    return orderly;
                }
            }
            Some(Event::Malformed(why)) => server.malformed(&why),
            Some(Event::End) => return server.is_shut_down(),
            None => {}
        }
    }
}

/// Takes out of the queue what was cancelled, and says so to the client.
fn cancel(server: &mut server::Server, waiting: &mut VecDeque<Event>) {
    let cancelled: Vec<Value> = waiting
        .iter()
        .filter_map(|event| match event {
            Event::Message(m) if m["method"] == "$/cancelRequest" => {
                Some(m["params"]["id"].clone())
            }
            _ => None,
        })
        .collect();
    if cancelled.is_empty() {
        return;
    }
    let mut kept = VecDeque::new();
    for event in std::mem::take(waiting) {
        match &event {
            Event::Message(m) if m.get("method").is_some() && m.get("id").is_some() => {
                match cancelled.contains(&m["id"]) {
                    true => server.refuse(m["id"].clone(), answer::CANCELLED, "cancelled"),
                    false => kept.push_back(event),
                }
            }
            _ => kept.push_back(event),
        }
    }
    *waiting = kept;
}

/// Writes one message; a client that does not listen any more will close the other stream too.
fn send(message: &Value) {
    let text = message.to_string();
    let mut out = std::io::stdout().lock();
    let head = format!("Content-Length: {}\r\n\r\n", text.len());
    let _ = out.write_all(head.as_bytes()).and_then(|()| out.write_all(text.as_bytes()));
    let _ = out.flush();
}

/// Ends this process when the one that started it is gone: a pipe that others hold open would
/// keep it alive.
fn watch_parent(pid: i32) {
    let watch = move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            // SAFETY: signal 0 is only a question, and takes no pointers.
            let gone = unsafe { libc::kill(pid, 0) } != 0
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
            if gone {
                std::process::exit(1);
            }
        }
    };
    // Without a thread there is still the end of the stream.
    let _ = std::thread::Builder::new().name("parent".into()).spawn(watch);
}
