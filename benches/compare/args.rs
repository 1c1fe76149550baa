//! The command line of `compare`.

use std::{ffi::OsString, path::PathBuf};

use crate::{Result, bucket::Server};

pub(crate) const HELP: &str = "\
Compare snap with other tools on the same data in one run

Usage: cargo run --release --manifest-path benches/Cargo.toml --bin compare -- [OPTIONS]

Options:
  --only WORK      Do only this work; may be repeated (see --list)
  --list           List the works; with --against those that it has
  --runs N         Timed runs of each tool, of which the median counts [default: 5]
  --on DIR         Work in DIR; may be repeated [default: the target folder, and /dev/shm]
  --snap PATH      The snap to measure [default: built now, in release mode]
  --against OLD    Compare snap with an older binary of itself only; has works of its own
  --source DIR     The real source tree [default: gathered from the cargo registry]
  --peers NAMES    Only these peers, separated by commas; `none` for none at all.
                   A peer that a target names stays
  --s3 SERVER      The bucket of the works with a remote: `inside` this process, or that
                   of `versitygw` (under tests/net/versitygw.sh) [default: inside]
  --markdown FILE  Write the table to FILE as well
  --small          A twentieth of the data or less, to see whether all works: its figures mean nothing
";

/// The parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) only: Vec<String>,
    pub(crate) list: bool,
    pub(crate) help: bool,
    pub(crate) runs: usize,
    pub(crate) on: Vec<PathBuf>,
    pub(crate) snap: Option<PathBuf>,
    pub(crate) against: Option<PathBuf>,
    pub(crate) source: Option<PathBuf>,
    pub(crate) peers: Option<Vec<String>>,
    pub(crate) s3: Server,
    pub(crate) markdown: Option<PathBuf>,
    pub(crate) small: bool,
}

impl Args {
    pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut args = Self { runs: 5, ..Self::default() };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let name = word.to_string_lossy().into_owned();
            let mut value = || words.next().ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--only" => args.only.push(text(value()?)),
                "--list" => args.list = true,
                "--help" | "-h" => args.help = true,
                "--runs" => args.runs = number(&text(value()?))?,
                "--on" => args.on.push(value()?.into()),
                "--snap" => args.snap = Some(std::path::absolute(value()?)?),
                "--against" => args.against = Some(std::path::absolute(value()?)?),
                "--source" => args.source = Some(value()?.into()),
                "--peers" => args.peers = Some(names(&text(value()?))),
                "--s3" => args.s3 = server(&text(value()?))?,
                "--markdown" => args.markdown = Some(value()?.into()),
                "--small" => args.small = true,
                _ => return Err(format!("unknown option `{name}`").into()),
            }
        }
        Ok(args)
    }

    /// Returns `full`, or with `--small` the much smaller number `small` for a trial run.
    pub(crate) fn scale(&self, full: usize, small: usize) -> usize {
        if self.small { small } else { full }
    }
}

fn text(word: OsString) -> String {
    word.to_string_lossy().into_owned()
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(|name| name.trim().to_owned()).filter(|name| name != "none").collect()
}

fn server(name: &str) -> Result<Server> {
    match name {
        "inside" => Ok(Server::Inside),
        "versitygw" => Ok(Server::Versitygw),
        _ => Err(format!("`{name}` is not a server; use `inside` or `versitygw`").into()),
    }
}

fn number(word: &str) -> Result<usize> {
    match word.parse() {
        Ok(runs @ 1..) => Ok(runs),
        _ => Err(format!("`{word}` is not a number of runs").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args> {
        Args::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_are_understood() {
        let args =
            parse("--only restore --only changed --runs 7 --on /a --peers git,borg").unwrap();
        assert_eq!(args.only, ["restore", "changed"]);
        assert_eq!((args.runs, args.small), (7, false));
        assert_eq!(args.on, [PathBuf::from("/a")]);
        assert_eq!(args.peers.unwrap(), ["git", "borg"]);
        assert_eq!(parse("--peers none").unwrap().peers, Some(Vec::new()));
        assert_eq!(parse("--s3 versitygw").unwrap().s3, Server::Versitygw);
        assert_eq!((parse("").unwrap().runs, parse("").unwrap().s3), (5, Server::Inside));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["--fast", "--runs", "--runs 0", "--runs many", "--s3 aws", "restore"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
