//! The binary: a user of the crate `monarch`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
