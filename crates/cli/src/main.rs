//! The program `holdover`.

fn main() -> std::process::ExitCode {
    holdover::main()
}
