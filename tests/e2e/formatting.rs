//! `monarch fmt`: what is written, what is not, and what is said.

use crate::support::Place;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

const UGLY: &str = "let a=1\nlet long = 2 # why\n";
const NICE: &str = "let a    = 1\nlet long = 2                               # why\n";

#[test]
fn files_are_replaced_and_keep_their_mode() {
    let place = Place::new();
    place.write("a.mon", UGLY);
    place.write("b.mon", NICE);
    fs::create_dir(place.file("more")).expect("a folder");
    place.write("more/c.mon", UGLY);
    fs::set_permissions(place.file("a.mon"), fs::Permissions::from_mode(0o640)).expect("a mode");
    symlink("a.mon", place.file("link.mon")).expect("a link");
    let out = place.run(&["fmt", "link.mon", "b.mon", "more"]).expect_code(0);
    assert_eq!(out.stdout, ["link.mon", "more/c.mon"], "{}", out.story());
    for name in ["a.mon", "b.mon", "more/c.mon"] {
        assert_eq!(fs::read_to_string(place.file(name)).expect("a text"), NICE, "{name}");
    }
    let meta = fs::symlink_metadata(place.file("a.mon")).expect("a file");
    assert_eq!(meta.permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(place.file("link.mon")).expect("a link").is_symlink());
    let left = fs::read_dir(place.path()).expect("a folder").flatten();
    assert!(left.into_iter().all(|e| !e.file_name().to_string_lossy().starts_with('.')));
}

#[test]
fn a_check_writes_nothing() {
    let place = Place::new();
    place.write("a.mon", UGLY);
    let out = place.run(&["fmt", "--check", "a.mon"]).expect_code(1);
    assert!(out.stdout.starts_with(&["a.mon:1".into(), "  - let a=1".into()]), "{}", out.story());
    assert_eq!(fs::read_to_string(place.file("a.mon")).expect("a text"), UGLY);
    place.run(&["fmt", "--stdout", "a.mon"]).expect_code(0);
    assert_eq!(fs::read_to_string(place.file("a.mon")).expect("a text"), UGLY);
    let out = place.run(&["fmt", "--json", "--check", "a.mon"]).expect_code(1);
    assert_eq!(out.events[1]["changed"], true, "{}", out.story());
    place.write("a.mon", NICE);
    place.run(&["fmt", "--check", "a.mon"]).expect_code(0);
}

#[test]
fn wrong_programs_are_formatted_where_they_can_be_read() {
    let place = Place::new();
    place.write("a.mon", "let a=1\ntrain  t {\n  lr == 3\n}\n");
    place.run(&["fmt", "a.mon"]).expect_code(2).says(&["M0010", "a.mon:3:6"]);
    let text = fs::read_to_string(place.file("a.mon")).expect("a text");
    assert_eq!(text, "let a = 1\ntrain  t {\n  lr == 3\n}\n");
    place.write("b.mon", [0xff, 0xfe]);
    place.run(&["fmt", "b.mon"]).expect_code(2).says(&["UTF-8"]);
    place.run(&["fmt", "gone.mon"]).expect_code(2).says(&["gone.mon"]);
}

/// Files that cannot be read or written are named, one by one, and hold up no other.
#[test]
fn one_bad_file_holds_up_no_other() {
    let place = Place::new();
    place.write("a.mon", UGLY);
    symlink("nowhere", place.file("b.mon")).expect("a link");
    symlink("loop.mon", place.file("loop.mon")).expect("a link");
    place.write("x.mon", UGLY);
    let odd = std::ffi::OsStr::from_bytes(b"n\xe9.mon");
    fs::write(place.path().join(odd), UGLY).expect("a file");
    let out = place.run(&["fmt", "."]).expect_code(2);
    assert_eq!(out.stdout, ["./a.mon", "./x.mon"], "{}", out.story());
    out.says(&["./b.mon", "./loop.mon", "is not UTF-8 text"]);
    let mut command = place.monarch(&["check"]);
    command.arg(odd);
    let out = crate::support::Running::start(command, crate::support::LIMIT).finish();
    out.expect_code(2).says(&["is not UTF-8 text"]);
}
