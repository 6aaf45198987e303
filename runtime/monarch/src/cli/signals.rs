//! Ctrl-C, SIGTERM and a closed terminal become requests to the run.

use monarch_controller::{ControlHandle, ControlRequest};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// From now on the first signal saves and stops, and the second stops now.
pub fn listen(handle: ControlHandle) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut seen = false;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if std::mem::replace(&mut seen, true) {
                super::progress::eprint_line("stopping now");
            } else {
                super::progress::eprint_line("saving, then stopping; once more to stop now");
            }
            handle.send(ControlRequest::Interrupt);
        }
    })?;
    Ok(())
}
