//! `sha256 = ".."`: files are what the program says they are.
//!
//! A check does not read weights whole; a plan does, once, before anything runs. The hash of one
//! file is its SHA-256. That of several is the SHA-256 of the list of theirs, sorted by name, as
//! `sha256sum *.safetensors | sha256sum` prints it in their folder.

use crate::hir::{Pin, Program};
use crate::{World, WorldError};
use monarch_diagnostic::Diagnostic;
use sha2::{Digest, Sha256};

/// Errors for all hashes of a program that its files do not have.
pub fn verify(world: &dyn World, program: &Program) -> Vec<Diagnostic> {
    program.pins.iter().filter_map(|pin| verify_one(world, pin)).collect()
}

fn verify_one(world: &dyn World, pin: &Pin) -> Option<Diagnostic> {
    let found = match hash(world, &pin.files) {
        Ok(found) => found,
        Err(e) => {
            let title = format!("files cannot be compared with their hash: {e}");
            return Some(Diagnostic::error("M0607", title).label(pin.span, "this hash"));
        }
    };
    if found.starts_with(&pin.sha256) {
        return None;
    }
    let title = match pin.files.as_slice() {
        [one] => format!("`{one}` is not the file that was meant"),
        many => format!("these {} files are not the ones that were meant", many.len()),
    };
    let d = Diagnostic::error("M0609", title).label(pin.span, "another hash");
    Some(d.fix(format!("the hash is {found}"), pin.span, format!("\"{found}\"")))
}

/// The hash of these files, in hexadecimal digits.
fn hash(world: &dyn World, files: &[String]) -> Result<String, WorldError> {
    let mut lines = Vec::new();
    for path in files {
        let sha256 = monarch_graph::hex(&world.file(path)?.sha256);
        let name = path.rsplit('/').next().unwrap_or(path);
        lines.push((name.to_owned(), sha256));
    }
    if let [(_, sha256)] = lines.as_slice() {
        return Ok(sha256.clone());
    }
    lines.sort();
    let list: String = lines.iter().map(|(name, sha)| format!("{sha}  {name}\n")).collect();
    Ok(monarch_graph::hex(&Sha256::digest(list)))
}
