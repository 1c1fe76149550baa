//! `snap serve token`: who may do what on a server.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use snap_core::base::time::Time;
use snap_server::{
    access::{
        file_of,
        tokens::{self, Token, Tokens, Wanted},
        who::Right,
    },
    hub,
};

use crate::{
    context::Context,
    report::{CliError, Done, ServeError},
    ui::time,
};

const EXAMPLES: &str = "\
Examples:
  snap serve token add ada                           may read everything
  snap serve token add ci --scope append --repo team/project
  snap serve token add root --scope admin --of /srv/snap
  snap serve token add ada --config /etc/snap/serve.toml
  snap serve token list
  snap serve token revoke ci

The token is printed once; of it only a hash is kept. Clients take it from
SNAP_REMOTE_SECRET or from `remote.NAME.credentials_file`: docs/remotes.md.";

/// Make, list and revoke tokens
///
/// A server with tokens lets nobody in who has none, and may listen on any
/// address. What is changed holds within a second, also on a server that runs.
/// They are in what is served; of a server before a bucket or another server,
/// where `tokens` in its settings says: --config.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    /// What to do
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a token, and print it
    #[command(after_help = EXAMPLES)]
    Add(AddArgs),
    /// List all tokens, without what is secret of them
    #[command(after_help = EXAMPLES)]
    List {
        #[command(flatten)]
        of: OfArgs,
    },
    /// Revoke a token: it holds no more
    #[command(after_help = EXAMPLES)]
    Revoke {
        /// Token to revoke
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        of: OfArgs,
    },
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// What to call it: it stands in logs as whoever used it
    name: String,

    /// What it is for
    #[arg(long, value_enum, default_value = "read")]
    scope: ScopeArg,

    /// Repository it is for; all if not given, several if repeated
    #[arg(long, value_name = "REPOSITORY")]
    repo: Vec<String>,

    /// When it ends to hold, such as 2027-01-31
    #[arg(long, value_name = "DATE")]
    expires: Option<String>,

    #[command(flatten)]
    of: OfArgs,
}

/// Which server is meant.
#[derive(Debug, clap::Args)]
struct OfArgs {
    /// What is served: a store, or a folder of stores; the store you stand in
    /// if not given
    #[arg(long = "of", value_name = "STORE")]
    place: Option<PathBuf>,

    /// File of settings of the server, which may say where its tokens are
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScopeArg {
    /// Read everything
    Read,
    /// Push what is new: no ref is moved or deleted
    Append,
    /// Push
    Write,
    /// Push, and make repositories
    Admin,
}

impl From<ScopeArg> for Right {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Read => Self::Read,
            ScopeArg::Append => Self::Append,
            ScopeArg::Write => Self::Write,
            ScopeArg::Admin => Self::Admin,
        }
    }
}

#[derive(Serialize)]
struct TokenJson<'a> {
    version: u32,
    name: &'a str,
    scope: Right,
    repositories: Option<&'a [String]>,
    made: String,
    expires: Option<String>,
    holds: bool,
}

#[derive(Serialize)]
struct ChangeJson<'a> {
    version: u32,
    action: &'static str,
    name: &'a str,
    /// The token itself, if it was made.
    secret: Option<&'a str>,
}

pub(crate) fn run(args: &TokenArgs, cx: &Context) -> Result<Done, CliError> {
    match &args.action {
        Action::Add(args) => add(args, cx)?,
        Action::List { of } => list(&of.file(cx)?, cx)?,
        Action::Revoke { name, of } => revoke(name, &of.file(cx)?, cx)?,
    }
    Ok(Done::Well)
}

impl OfArgs {
    /// The file of tokens.
    fn file(&self, cx: &Context) -> Result<PathBuf, CliError> {
        let settings = super::settings(self.config.as_deref(), cx)?;
        if let Some(file) = settings.tokens {
            return Ok(file);
        }
        let upstream = settings.upstream.clone();
        let url = self.place.as_deref().and_then(super::url).map(str::to_owned);
        let place = match (upstream.or(url), &self.place) {
            (Some(upstream), _) => return Err(ServeError::NoTokenFile { upstream }.into()),
            (None, Some(place)) => super::there(place)?.to_owned(),
            (None, None) => cx.store_dir()?,
        };
        let home = hub::home(&place)?;
        Ok(file_of(Some(&home), &settings).unwrap_or(home))
    }
}

fn at(secs: i64) -> Time {
    Time { secs, nanos: 0 }
}

fn add(args: &AddArgs, cx: &Context) -> Result<(), CliError> {
    let file = args.of.file(cx)?;
    let expires = args.expires.as_deref().map(|text| {
        let bad = || ServeError::Expires { text: text.to_owned() };
        time::parse(text, cx.now()).filter(|time| *time > cx.now()).ok_or_else(bad)
    });
    let wanted = Wanted {
        name: args.name.clone(),
        scope: args.scope.into(),
        repositories: (!args.repo.is_empty()).then(|| args.repo.clone()),
        made: cx.now().secs,
        expires: expires.transpose()?.map(|time| time.secs),
    };
    let secret = tokens::add(&file, wanted).map_err(ServeError::from)?;
    let name = &args.name;
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        let secret = Some(secret.reveal());
        out.json(&ChangeJson { version: 1, action: "added", name, secret })?;
    } else {
        writeln!(out, "{}", secret.reveal())?;
    }
    out.finish()?;
    cx.ui().status(format_args!("Added token {name}; it is not shown again"));
    Ok(())
}

fn revoke(name: &str, file: &Path, cx: &Context) -> Result<(), CliError> {
    tokens::revoke(file, name).map_err(ServeError::from)?;
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&ChangeJson { version: 1, action: "revoked", name, secret: None })?;
    }
    out.finish()?;
    cx.ui().status(format_args!("Revoked token {name}"));
    Ok(())
}

fn list(file: &Path, cx: &Context) -> Result<(), CliError> {
    let tokens = Tokens::read(file).map_err(ServeError::from)?.unwrap_or_default();
    let width = tokens.list().map(|token| token.name.len()).max().unwrap_or(0);
    let mut out = cx.ui().out();
    for token in tokens.list() {
        match cx.ui().is_json() {
            true => out.json(&record(token, cx))?,
            false => {
                let name = cx.ui().paint().name(&format!("{:<width$}", token.name));
                writeln!(out, "{name}  {:<6}  {}", token.scope.name(), told(token, cx))?;
            }
        }
    }
    out.finish()?;
    if tokens.list().next().is_none() {
        cx.ui().status(format_args!("There is no token; `snap serve token add` makes one"));
    }
    Ok(())
}

/// Where a token holds, and until when.
fn told(token: &Token, cx: &Context) -> String {
    let places = match &token.repositories {
        Some(names) => names.join(", "),
        None => "all repositories".to_owned(),
    };
    match token.expires {
        Some(secs) if token.holds(cx.now().secs) => {
            format!("{places}, until {}", time::local(at(secs)))
        }
        Some(secs) => format!("{places}, expired {}", time::local(at(secs))),
        None => places,
    }
}

fn record<'a>(token: &'a Token, cx: &Context) -> TokenJson<'a> {
    TokenJson {
        version: 1,
        name: &token.name,
        scope: token.scope,
        repositories: token.repositories.as_deref(),
        made: at(token.made).rfc3339(),
        expires: token.expires.map(|secs| at(secs).rfc3339()),
        holds: token.holds(cx.now().secs),
    }
}
