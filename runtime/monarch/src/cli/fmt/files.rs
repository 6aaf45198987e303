//! Programs on disk: finding, reading and replacing them.

use super::Failure;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The name that stands for standard input.
pub const INPUT: &str = "-";

/// The programs that the arguments name, folders searched, in order, each once.
pub fn programs<'a>(given: impl Iterator<Item = &'a String>) -> Result<Vec<String>, Failure> {
    let mut all: Vec<String> = Vec::new();
    for name in given {
        let mut found = match Path::new(name).is_dir() {
            true => below(Path::new(name))?,
            false => vec![name.clone()],
        };
        if found.is_empty() {
            return Err(Failure::wrong(format!("there is no `.mon` file below `{name}`")));
        }
        found.retain(|name| !all.contains(name));
        all.append(&mut found);
    }
    Ok(all)
}

/// All `.mon` files below a folder, sorted; hidden folders and build outputs are left out, and
/// links to folders are not followed.
fn below(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| cannot("read", &folder, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| cannot("read", &folder, &e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(|e| cannot("read", &entry.path(), &e))?;
            let skipped = name.starts_with('.') || name == "target";
            if kind.is_dir() && !skipped {
                open.push(entry.path());
            } else if name.ends_with(".mon") && !kind.is_dir() && !name.starts_with('.') {
                found.push(entry.path().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let why = error.to_string();
    let why = why.split(" (os error").next().unwrap_or(&why).to_string();
    Failure::run(format!("cannot {what} `{}`: {why}", path.display()))
}

/// The bytes of a program, a little more than a program may have at most.
pub fn read(name: &str) -> Result<Vec<u8>, Failure> {
    let most = monarch_syntax::MAX_BYTES as u64 + 1;
    let path = Path::new(name);
    let mut bytes = Vec::new();
    let read = if name == INPUT {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        let meta = fs::metadata(path).map_err(|e| wrong(path, &e))?;
        if !meta.is_file() {
            return Err(Failure::wrong(format!("`{name}` is no file but a pipe or a device")));
        }
        fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map(|_| bytes).map_err(|e| wrong(path, &e))
}

fn wrong(path: &Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound if path.to_string_lossy().contains('\u{fffd}') => {
            Failure::wrong(super::super::not_utf8(&path.to_string_lossy()))
        }
        std::io::ErrorKind::NotFound => {
            Failure::wrong(format!("there is no file `{}`", path.display()))
        }
        _ => cannot("read", path, error),
    }
}

/// Replaces a file by way of one beside it, so that nobody ever sees half of it.
pub fn replace(name: &str, text: &str) -> Result<(), Failure> {
    // The file itself, not a link to it.
    let path = fs::canonicalize(name).map_err(|e| cannot("write", Path::new(name), &e))?;
    let beside = beside(&path);
    let written = write(&path, &beside, text);
    if written.is_err() {
        // It may not be there at all; the failure to tell about is the first.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(|e| cannot("write", &path, &e))
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn write(path: &Path, beside: &Path, text: &str) -> std::io::Result<()> {
    let permissions = fs::metadata(path)?.permissions();
    if permissions.readonly() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    let mut file = fs::File::create_new(beside)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(permissions)?;
    file.sync_all()?;
    fs::rename(beside, path)
}
