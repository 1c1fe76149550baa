//! Credentials for remotes: from variables, a file of the user, or a command.
//!
//! A file has lines such as `name = …`, `secret = …`, `session = …`, and must not be readable by
//! other users. A command prints the same lines, or the JSON of AWS's `credential_process`, or the
//! JSON of a token endpoint, or the secret on the first line, as `pass` does. Messages never
//! contain a secret.

use std::{
    fs::Permissions,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

use snap_core::base::{blocked::Blocked, io::PathError};
use snap_remote::{location::Scheme, peer::open::RemoteCredentials};

use super::network::Network;
use crate::{
    env::RemoteEnv,
    report::{CliError, UntrustedSettings},
};

/// Maximum length of a file or of the output of a command.
const LONGEST: u64 = 64 << 10;

/// Mode bits that give the group or others any access.
const OTHERS: u32 = 0o077;

/// The sources of credentials in the settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// The file, with `~` replaced.
    pub(crate) file: Option<std::path::PathBuf>,
    /// The command line for the shell.
    pub(crate) command: Option<String>,
    /// The settings of the untrusted store that names the location. No credentials are sent then.
    pub(crate) withheld: Option<UntrustedSettings>,
}

/// Finds the credentials of a remote. snap's own variables take precedence; then come the file or
/// the command in the settings, then the variables of the service. S3 and Google Cloud look for
/// further credentials by themselves.
pub(super) fn find(
    (remote, scheme): (&str, Scheme),
    sources: &Credentials,
    (env, network): (&RemoteEnv, &Network),
) -> Result<RemoteCredentials, CliError> {
    // The clients of these services find credentials by themselves and use them; for SFTP, `ssh`
    // does.
    let finds_keys = matches!(scheme, Scheme::S3 | Scheme::Gcs | Scheme::Azblob | Scheme::Sftp);
    let has_secret = env.secret.is_some() || env.session.is_some();
    // The user's own file may have credentials for a remote whose location the store's file names.
    let has_keys = sources.file.is_some() || sources.command.is_some();
    if let Some(settings) = &sources.withheld
        && (finds_keys || has_secret || has_keys)
    {
        let (remote, settings) = (remote.to_owned(), settings.clone());
        return Err(CliError::KeysWithheld { remote, settings });
    }
    if env.secret.is_some() {
        return Ok(RemoteCredentials {
            name: env.user.clone(),
            secret: env.secret.clone(),
            session: env.session.clone(),
        });
    }
    let mut found = match (&sources.file, &sources.command) {
        (Some(file), _) => of_file(file)?,
        (None, Some(command)) => of_command(remote, command, network)?,
        (None, None) => of_service(scheme, env),
    };
    if env.user.is_some() {
        found.name.clone_from(&env.user);
    }
    Ok(found)
}

fn of_service(scheme: Scheme, env: &RemoteEnv) -> RemoteCredentials {
    match scheme {
        Scheme::Azblob => RemoteCredentials {
            name: env.azure_account.clone(),
            secret: env.azure_key.clone(),
            session: None,
        },
        _ => RemoteCredentials::default(),
    }
}

fn of_file(path: &Path) -> Result<RemoteCredentials, CliError> {
    let when = || PathError::when("read", path);
    let file = fs_err::File::open(path).map_err(when())?;
    let meta = file.metadata().map_err(when())?;
    let unsafe_file = |why: String| CliError::CredentialsFile { path: path.to_owned(), why };
    let uid = rustix::process::geteuid().as_raw();
    if meta.uid() != uid && meta.uid() != 0 {
        return Err(unsafe_file(format!("it belongs to the user with id {}", meta.uid())));
    }
    let mode = Permissions::mode(&meta.permissions()) & 0o7777;
    if mode & OTHERS != 0 {
        return Err(unsafe_file(format!("other users may read it (mode {mode:04o})")));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).map_err(when())?;
    let text = String::from_utf8(bytes).map_err(|_| unsafe_file("it is not UTF-8".to_owned()))?;
    parse(&text).ok_or_else(|| unsafe_file("it has no line `secret = …`".to_owned()))
}

fn of_command(
    remote: &str,
    command: &str,
    network: &Network,
) -> Result<RemoteCredentials, CliError> {
    let failed = |why: String| CliError::CredentialsCommand { remote: remote.to_owned(), why };
    let mut line = Command::new("sh");
    line.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child =
        line.spawn().map_err(|error| failed(format!("it cannot be started: {error}")))?;
    let mut bytes = Vec::new();
    let read = match child.stdout.take() {
        Some(stdout) => stdout.take(LONGEST).read_to_end(&mut bytes),
        None => Ok(0),
    };
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    if network.is_stopped() {
        return Err(snap_remote::peer::RemoteError::Blocked(Blocked::Interrupted).into());
    }
    read.map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| failed("its output is not UTF-8".to_owned()))?;
    parse(&text).ok_or_else(|| failed("its output contains no secret".to_owned()))
}

/// Parses credentials; returns `None` if the text has no secret.
fn parse(text: &str) -> Option<RemoteCredentials> {
    let text = text.trim_start();
    let found = if text.starts_with('{') { of_json(text)? } else { of_lines(text) };
    found.secret.is_some().then_some(found)
}

fn of_json(text: &str) -> Option<RemoteCredentials> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let first = |names: &[&str]| {
        let found = names.iter().find_map(|name| value.get(name)?.as_str());
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    Some(RemoteCredentials {
        name: first(&["AccessKeyId", "name", "user"]),
        secret: first(&["SecretAccessKey", "secret", "password", "token", "id_token", "value"]),
        session: first(&["SessionToken", "session"]),
    })
}

fn of_lines(text: &str) -> RemoteCredentials {
    let mut found = RemoteCredentials::default();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let divided = line.split_once(['=', ':']);
        let (key, value) = divided.map_or(("", line), |(key, value)| (key.trim(), value.trim()));
        let place = match &*key.to_ascii_lowercase() {
            "name" | "user" | "username" | "login" | "aws_access_key_id" => &mut found.name,
            "secret" | "password" | "token" | "aws_secret_access_key" => &mut found.secret,
            "session" | "aws_session_token" => &mut found.session,
            _ if number == 0 => {
                found.secret = Some(line.to_owned());
                continue;
            }
            _ => continue,
        };
        *place = Some(value.to_owned()).filter(|value| !value.is_empty());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<[Option<String>; 3]> {
        parse(text).map(|found| [found.name, found.secret, found.session])
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn keys_are_read_in_the_forms_that_tools_print() {
        let pair = Some([some("ada"), some("s=:x"), None]);
        assert_eq!(parts("# a comment\nname = ada\nsecret=s=:x\n"), pair);
        assert_eq!(parts("s=:x\nuser: ada\nurl: https://host\n"), pair);
        let json = r#"{"Version": 1, "AccessKeyId": "ada", "SecretAccessKey": "x",
            "SessionToken": "t", "Expiration": "2026-11-21T08:00:00Z"}"#;
        assert_eq!(parts(json), Some([some("ada"), some("x"), some("t")]));
        assert_eq!(parts("only\n"), Some([None, some("only"), None]));
        let jwt = format!("eyJhbGciOiJSUzI1NiJ9.{}.c2ln-_", "eyJhIjoxfQ".repeat(1_000));
        assert_eq!(parts(&format!("{jwt}\n")), Some([None, some(&jwt), None]));
        let answer = format!(r#"{{"count": 1, "value": "{jwt}"}}"#);
        assert_eq!(parts(&answer), Some([None, some(&jwt), None]));
        for none in ["", "\n", "name = ada\n", "secret =\n", "{}", "{ not json"] {
            assert_eq!(parts(none), None, "{none}");
        }
    }
}
