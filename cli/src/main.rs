//! `snap`: snapshots at the command line.

mod args;
mod child;
mod command_stream;
mod commands;
mod complete;
mod config;
mod context;
mod env;
mod foreign;
mod reference;
mod remote;
mod report;
mod serve_lock;
mod snapshot;
#[cfg(debug_assertions)]
mod step_counter;
mod stream;
mod typed_path;
mod ui;

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> ExitCode {
    // For output before a context exists, or if none can be created.
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
    context.print_stats();
    let exit = match ran {
        Ok(done) => report::done(done),
        Err(error) => {
            let error = context.explain_missing(error);
            let words: Vec<_> = std::env::args_os().collect();
            let advice = snapshot::advice(&error, &context, &words)
                .or_else(|| typed_path::advice(&error, (&args.command, &context), &words));
            report::failure(&error, advice, context.ui())
        }
    };
    context.close();
    exit
}

/// Limit on open files that this process requests.
const OPEN_FILES: u64 = 1 << 20;

/// Raises the soft limit on open files. Many systems set it to 1,024 for programs that use
/// `select`. A commit holds a descriptor for each folder in progress, and a server one for each
/// connection.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    if limit.current.is_some_and(|current| current < wanted) {
        // If the system refuses, the old limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}
