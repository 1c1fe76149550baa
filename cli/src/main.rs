//! `snap`: snapshots at the command line.

mod args;
mod commands;
mod complete;
mod config;
mod context;
mod env;
mod reference;
mod remote;
mod report;
mod snapshot;
mod stream;
mod ui;

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> ExitCode {
    // Before there is a context, or when there is none to be had.
    let ui = |global: &args::Global| {
        let env = env::Env::read();
        let settings = config::UiSettings::of(&env, global);
        ui::Ui::new(global, &settings, &env)
    };
    raise_open_files();
    let args = match args::Args::read() {
        Ok(args) => args,
        Err(answer) => {
            return report::usage(&answer, &ui(&args::Global::guess(std::env::args_os())));
        }
    };
    let context = match context::Context::new(&args.global) {
        Ok(context) => context,
        Err(error) => return report::failure(&error, None, &ui(&args.global)),
    };
    let ran = commands::run(&args.command, &context);
    context.tell_stats();
    let exit = match ran {
        Ok(done) => report::done(done),
        Err(error) => {
            let advice = snapshot::advice(&error, &context, std::env::args_os());
            report::failure(&error, advice, context.ui())
        }
    };
    context.close();
    exit
}

/// Most files that this process asks to have open at once.
const OPEN_FILES: u64 = 1 << 20;

/// Raises the soft limit on open files, which many systems set to 1,024 for the sake
/// of programs that use `select`: a commit holds a descriptor for each folder that is
/// under way, and a server one for each connection.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    if limit.current.is_some_and(|current| current < wanted) {
        // Where the system refuses, the old limit holds.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}
