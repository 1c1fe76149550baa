//! The commands, one file for each.

pub(crate) mod against_files;
pub(crate) mod archive;
pub(crate) mod branch;
pub(crate) mod cat;
pub(crate) mod clone;
pub(crate) mod commit;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod diff;
pub(crate) mod docs;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod find;
pub(crate) mod forget;
pub(crate) mod gc;
pub(crate) mod init;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod ls_remote;
pub(crate) mod man;
pub(crate) mod pack;
pub(crate) mod pull;
pub(crate) mod push;
mod refs;
mod remaining;
pub(crate) mod remote;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod rewrite;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod tag;
pub(crate) mod undo;
pub(crate) mod unpack;
pub(crate) mod verify;
mod verify_bundle;

use crate::{
    args::Command,
    context::Context,
    report::{CliError, CommandOutcome},
};

/// Runs a command.
pub(crate) fn run(command: &Command, cx: &Context) -> Result<CommandOutcome, CliError> {
    if !does_without_workers(command) {
        // Otherwise rayon would start the threads on first use, and panic if that fails.
        rayon::ThreadPoolBuilder::new().build_global().map_err(CliError::Threads)?;
    }
    match command {
        Command::Init(args) => init::run(args, cx),
        Command::Commit(args) => commit::run(args, cx),
        Command::Status(args) => status::run(args, cx),
        Command::Diff(args) => diff::run(args, cx),
        Command::Log(args) => log::run(args, cx),
        Command::Show(args) => show::run(args, cx),
        Command::Find(args) => find::run(args, cx),
        Command::Stats(args) => stats::run(args, cx),
        Command::Ls(args) => ls::run(args, cx),
        Command::Cat(args) => cat::run(args, cx),
        Command::Restore(args) => restore::run(args, cx),
        Command::Export(args) => export::run(args, cx),
        Command::Branch(args) => branch::run(args, cx),
        Command::Tag(args) => tag::run(args, cx),
        Command::Archive(args) => archive::run(args, cx),
        Command::Push(args) => push::run(args, cx),
        Command::Pull(args) => pull::run(args, cx),
        Command::Clone(args) => clone::run(args, cx),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(args, cx),
        Command::Fetch(args) => fetch::run(args, cx),
        Command::Remote(args) => remote::run(args, cx),
        Command::LsRemote(args) => ls_remote::run(args, cx),
        Command::Pack(args) => pack::run(args, cx),
        Command::Unpack(args) => unpack::run(args, cx),
        Command::Undo(args) => undo::run(args, cx),
        Command::Verify(args) => verify::run(args, cx),
        Command::Repair(args) => repair::run(args, cx),
        Command::Forget(args) => forget::run(args, cx),
        Command::Gc(args) => gc::run(args, cx),
        Command::Rewrite(args) => rewrite::run(args, cx),
        Command::Config(args) => config::run(args, cx),
        Command::Completions(args) => completions::run(args, cx),
        Command::Man(args) => man::run(args, cx),
        Command::Complete(args) => complete::run(args, cx),
        Command::Docs(args) => docs::run(args, cx),
    }
}

/// Returns true if a command needs no worker threads, because it reads and writes no file contents.
fn does_without_workers(command: &Command) -> bool {
    match command {
        Command::Log(args) => !args.reads_contents(),
        Command::Init(_)
        | Command::Ls(_)
        | Command::Branch(_)
        | Command::Tag(_)
        | Command::Undo(_)
        | Command::Forget(_)
        | Command::Rewrite(_)
        | Command::Remote(_)
        | Command::LsRemote(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Complete(_)
        | Command::Docs(_) => true,
        _ => false,
    }
}
