//! `snap config trust`: trusts a store and the commands in its settings.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use serde::Serialize;
use snap_core::repo::{
    Repo,
    config::{
        FILE,
        error::SettingOrigin,
        key::KeyPath,
        layer::{ConfigOwner, Layer},
    },
    open::{STORE_FOLDER, read_config_file, refuse_found_link},
};

use super::{json, shown_value};
use crate::{
    config::trust::{is_sensitive, sensitive},
    context::Context,
    report::CliError,
    ui::{size, text},
};

/// A store that was trusted, or whose trust was removed.
#[derive(Serialize)]
struct TrustJson {
    version: u32,
    r#type: &'static str,
    action: &'static str,
    store: String,
    /// The uid of the owner of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<u32>,
    /// The settings that are now used.
    settings: Vec<TrustedSettingJson>,
}

#[derive(Serialize)]
struct TrustedSettingJson {
    key: String,
    value: serde_json::Value,
}

/// Returns whether a setting is used, if that depends on trust.
pub(super) fn of(path: &KeyPath, origin: &SettingOrigin, is_trusted: bool) -> Option<bool> {
    let depends = origin.is_of_store() && is_sensitive(path);
    depends.then_some(is_trusted)
}

pub(super) fn run(dir: Option<&Path>, forget: bool, cx: &Context) -> Result<(), CliError> {
    let store = store(dir, cx)?;
    let trust = cx.settings().trust();
    let shown = text::line(store.as_os_str().as_encoded_bytes());
    let path = store.to_string_lossy().into_owned();
    let mut out = cx.ui().out();
    if forget {
        let was_there = trust.forget(&store)?;
        match was_there {
            true => cx.ui().status(format_args!("The store at {shown} is not trusted any more")),
            false => cx.ui().status(format_args!("The store at {shown} was not trusted")),
        }
        if cx.ui().is_json() {
            let action = "forgotten";
            out.json(&TrustJson {
                version: 1,
                r#type: "store-trusted",
                action,
                store: path,
                owner: None,
                settings: Vec::new(),
            })?;
        }
        return Ok(out.finish()?);
    }
    if !trust.can_remember() {
        return Err(CliError::NoStateFolder);
    }
    // The values that were shown are the ones that become trusted, so the file is not read again.
    let file = read_config_file(&store)?;
    let shown_settings: Vec<_> = sensitive(&file.layer)
        .map(|(key, value, _)| (key, shown_value(key, value.clone())))
        .collect();
    if !cx.ui().is_json() {
        for (key, value) in &shown_settings {
            writeln!(out, "{}", text::line(format!("{key} = {value}").as_bytes()))?;
        }
        out.flush()?;
    }
    trust.remember_settings(&store, &file.layer)?;
    let owner = trust.remember_owner(&store)?;
    let count = shown_settings.len() as u64;
    let own = rustix::process::geteuid().as_raw();
    let whose = match owner == own {
        true => String::new(),
        false => format!(", which belongs to the user with id {owner}"),
    };
    let what = match count {
        0 => "it has no hooks, profiles or remotes".to_owned(),
        _ => format!("{} of its file", size::count(count, "setting")),
    };
    cx.ui().status(format_args!("Trusted the store at {shown}{whose}: {what}"));
    if cx.ui().is_json() {
        let settings = shown_settings
            .iter()
            .map(|(key, value)| TrustedSettingJson { key: key.to_string(), value: json(value) });
        let (action, settings) = ("trusted", settings.collect());
        out.json(&TrustJson {
            version: 1,
            r#type: "store-trusted",
            action,
            store: path,
            owner: Some(owner),
            settings,
        })?;
    }
    Ok(out.finish()?)
}

/// Returns the store: `dir`, the `.snap` in it, or the one found from the current folder.
fn store(dir: Option<&Path>, cx: &Context) -> Result<PathBuf, CliError> {
    let Some(dir) = dir else { return cx.store_dir() };
    let inside = dir.join(STORE_FOLDER);
    let is_one = |store: &Path| store.join(FILE).exists() || Repo::is_unfinished(store);
    if dir.join(FILE).exists() || !is_one(&inside) {
        return Ok(dir.to_owned());
    }
    refuse_found_link(&inside)?;
    Ok(inside)
}

/// Records the settings that the user wrote into a store's file as trusted. If that fails, prints a
/// warning, because the file has already been written.
pub(crate) fn trust_change(store: &Path, text: &str, cx: &Context) -> Result<(), CliError> {
    let trust = cx.settings().trust();
    let layer = Layer::parse(text, &store.join(FILE), ConfigOwner::Store)?;
    let is_plain = sensitive(&layer).next().is_none();
    if (is_plain && !trust.can_remember()) || trust.is_named(store) {
        return Ok(());
    }
    if let Err(error) = trust.remember_settings(store, &layer) {
        cx.ui().warning(format_args!(
            "the hooks, profiles and remotes of this store are not trusted: {error}; SNAP_TRUST \
             names a store that is trusted"
        ));
    }
    Ok(())
}
