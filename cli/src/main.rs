//! `snap`: snapshots at the command line.

mod args;
mod commands;
mod config;
mod context;
mod env;
mod report;
mod snapshot;
mod stdin;
mod ui;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(answer) => return report::usage(&answer),
    };
    let context = match context::Context::new(&args.global) {
        Ok(context) => context,
        Err(error) => return report::failure(&error, &ui::Ui::plain()),
    };
    match commands::run(&args.command, &context) {
        Ok(done) => report::done(done),
        Err(error) => report::failure(&error, context.ui()),
    }
}
