//! `snap serve token`: manages the tokens of a server.

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
        principal::Right,
        tokens::{self, NewToken, Token, Tokens},
    },
    hub,
};

use crate::{
    context::Context,
    report::{CliError, CommandOutcome, ServeError},
    ui::time,
};

const EXAMPLES: &str = "\
Examples:
  snap serve token add ada        from now on, clients need a token
  snap serve token list
  snap serve token revoke ada";

const ADD_EXAMPLES: &str = "\
Examples:
  snap serve token add ada                           may read everything
  snap serve token add ci --scope append --repository team/project
  snap serve token add root --scope admin --of /srv/snap
  snap serve token add ada --config /etc/snap/serve.toml
  snap serve token add guest --expires 2027-01-31

Prints the token once, and stores only a hash of it. Clients read the token from
SNAP_REMOTE_SECRET, or from the file in `remote.NAME.credentials_file`. See
docs/remotes.md.";

const LIST_EXAMPLES: &str = "\
Examples:
  snap serve token list
  snap serve token list --of /srv/snap
  snap --json serve token list";

const REVOKE_EXAMPLES: &str = "\
Examples:
  snap serve token revoke ci
  snap serve token revoke ada --config /etc/snap/serve.toml";

/// Add, list and revoke tokens
///
/// A server with tokens refuses requests without one, and can listen on any address. Changes take
/// effect within a second, also on a running server. Tokens are stored with the served stores. A
/// server with an upstream stores them in the file that its setting `tokens` names.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    /// What to do
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Debug, Subcommand)]
enum TokenAction {
    /// Add a token and print it
    #[command(after_help = ADD_EXAMPLES)]
    Add(TokenAddArgs),
    /// List all tokens, without their secrets
    #[command(after_help = LIST_EXAMPLES)]
    List {
        #[command(flatten)]
        of: OfArgs,
    },
    /// Revoke a token
    #[command(after_help = REVOKE_EXAMPLES)]
    Revoke {
        /// Token to revoke
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        of: OfArgs,
    },
}

#[derive(Debug, clap::Args)]
struct TokenAddArgs {
    /// Name of the token, shown in logs
    name: String,

    /// What the token permits
    #[arg(long, value_enum, default_value = "read")]
    scope: ScopeArg,

    /// Repository that the token permits; may be repeated; default: all
    #[arg(long, value_name = "REPOSITORY")]
    repository: Vec<String>,

    /// Expiry date, such as 2027-01-31
    #[arg(long, value_name = "DATE")]
    expires: Option<String>,

    #[command(flatten)]
    of: OfArgs,
}

/// Which server is meant.
#[derive(Debug, clap::Args)]
struct OfArgs {
    /// Served store or folder of stores; default: the current store
    #[arg(long = "of", value_name = "STORE")]
    place: Option<PathBuf>,

    /// Settings file of the server, which names the file of its tokens
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScopeArg {
    /// Read
    Read,
    /// Read, add new refs and fast-forward branches; no other moves, no deletions
    Append,
    /// Push
    Write,
    /// Push, and create repositories
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
    r#type: &'static str,
    name: &'a str,
    scope: Right,
    repositories: Option<&'a [String]>,
    made: String,
    expires: Option<String>,
    holds: bool,
}

#[derive(Serialize)]
struct TokenChangeJson<'a> {
    version: u32,
    r#type: &'static str,
    action: &'static str,
    name: &'a str,
    /// The secret of a new token.
    secret: Option<&'a str>,
}

pub(crate) fn run(args: &TokenArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    match &args.action {
        TokenAction::Add(args) => add(args, cx)?,
        TokenAction::List { of } => list(&of.file(cx)?, cx)?,
        TokenAction::Revoke { name, of } => revoke(name, &of.file(cx)?, cx)?,
    }
    Ok(CommandOutcome::Success)
}

impl OfArgs {
    /// Returns the path of the file of tokens.
    fn file(&self, cx: &Context) -> Result<PathBuf, CliError> {
        let settings = super::settings(self.config.as_deref(), cx)?;
        if let Some(file) = settings.tokens {
            return Ok(file);
        }
        let upstream = settings.upstream.clone();
        let url = self.place.as_deref().and_then(super::url).map(str::to_owned);
        let place = match (upstream.or(url), &self.place) {
            (Some(upstream), _) => return Err(ServeError::NoTokenFile { upstream }.into()),
            (None, Some(place)) => super::existing_path(place)?.to_owned(),
            (None, None) => cx.store_dir()?,
        };
        let home = hub::home(&place)?;
        Ok(file_of(Some(&home), &settings).unwrap_or(home))
    }
}

fn at(secs: i64) -> Time {
    Time { secs, nanos: 0 }
}

fn add(args: &TokenAddArgs, cx: &Context) -> Result<(), CliError> {
    let file = args.of.file(cx)?;
    let expires = args.expires.as_deref().map(|text| {
        let bad = || ServeError::Expires { text: text.to_owned() };
        time::parse(text, cx.now()).filter(|time| *time > cx.now()).ok_or_else(bad)
    });
    let wanted = NewToken {
        name: args.name.clone(),
        scope: args.scope.into(),
        repositories: (!args.repository.is_empty()).then(|| args.repository.clone()),
        made: cx.now().secs,
        expires: expires.transpose()?.map(|time| time.secs),
    };
    let secret = tokens::add(&file, wanted).map_err(ServeError::from)?;
    let name = &args.name;
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        let secret = Some(secret.reveal());
        out.json(&TokenChangeJson {
            version: 1,
            r#type: "token-changed",
            action: "added",
            name,
            secret,
        })?;
    } else {
        writeln!(out, "{}", secret.reveal())?;
    }
    out.finish()?;
    cx.ui().status(format_args!("Added token {name}; it is shown only once"));
    Ok(())
}

fn revoke(name: &str, file: &Path, cx: &Context) -> Result<(), CliError> {
    tokens::revoke(file, name).map_err(ServeError::from)?;
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&TokenChangeJson {
            version: 1,
            r#type: "token-changed",
            action: "revoked",
            name,
            secret: None,
        })?;
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
                writeln!(out, "{name}  {:<6}  {}", token.scope.name(), describe(token, cx))?;
            }
        }
    }
    out.finish()?;
    if tokens.list().next().is_none() {
        cx.ui().status(format_args!("The store has no tokens; `snap serve token add` creates one"));
    }
    Ok(())
}

/// Formats the repositories and the expiry of a token.
fn describe(token: &Token, cx: &Context) -> String {
    let places = match &token.repositories {
        Some(names) => names.join(", "),
        None => "all repositories".to_owned(),
    };
    match token.expires {
        Some(secs) if token.is_valid(cx.now().secs) => {
            format!("{places}, until {}", time::local(at(secs)))
        }
        Some(secs) => format!("{places}, expired {}", time::local(at(secs))),
        None => places,
    }
}

fn record<'a>(token: &'a Token, cx: &Context) -> TokenJson<'a> {
    TokenJson {
        version: 1,
        r#type: "token",
        name: &token.name,
        scope: token.scope,
        repositories: token.repositories.as_deref(),
        made: at(token.made).rfc3339(),
        expires: token.expires.map(|secs| at(secs).rfc3339()),
        holds: token.is_valid(cx.now().secs),
    }
}
