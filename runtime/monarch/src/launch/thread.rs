//! Workers as threads of this process, for embedding programs and tests.

use monarch_controller::{Child, ChildExit, Launcher, Seat};
use monarch_worker::{ControlLink, Parting, Received, WorkerError};
use std::thread::JoinHandle;

/// Starts workers as threads.
pub struct Threads {
    pub count: u32,
}

impl Launcher for Threads {
    fn launch(&mut self, seat: &Seat) -> std::io::Result<Box<dyn Child>> {
        let end = seat.door.connect();
        let send = end.sender();
        let link = ControlLink::new(
            move |message| send(message).map_err(|e| e.to_string()),
            move |limit| match end.recv_timeout(limit) {
                Ok(Some(message)) => Received::Message(Box::new(message)),
                Ok(None) => Received::Nothing,
                Err(e) => Received::Closed(e.to_string()),
            },
        );
        let config = monarch_worker::Config {
            slot: Some(seat.slot),
            job: Some(seat.job_hash),
            ..monarch_worker::Config::default()
        };
        let thread = std::thread::Builder::new().name(format!("worker {}", seat.slot));
        let handle = thread.spawn(move || monarch_worker::run(link, config))?;
        Ok(Box::new(WorkerThread { handle: Some(handle), exit: None }))
    }

    fn count(&self) -> u32 {
        self.count
    }
}

struct WorkerThread {
    handle: Option<JoinHandle<Result<Parting, WorkerError>>>,
    exit: Option<ChildExit>,
}

impl Child for WorkerThread {
    fn try_wait(&mut self) -> Option<ChildExit> {
        if self.handle.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(handle) = self.handle.take()
        {
            let (text, clean) = match handle.join() {
                Ok(Ok(_)) => ("its thread ended".to_string(), true),
                Ok(Err(error)) => (error.to_string(), false),
                Err(panic) => (format!("panicked: {}", words(panic.as_ref())), false),
            };
            self.exit = Some(ChildExit { text, signal: None, clean });
        }
        self.exit.clone()
    }

    /// A thread leaves by itself when its link is closed.
    fn kill(&mut self) {}

    fn stderr_tail(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".into())
}
