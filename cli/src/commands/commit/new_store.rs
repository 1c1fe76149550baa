//! Asks before a commit creates a store in a folder where the user may not expect one. Without a
//! terminal, it refuses `/` and the home folder, and only reports other folders.

use snap_core::base::blocked::Blocked;
use std::path::{Path, PathBuf};

use snap_core::{disk::output::folder_of, ops::commit::CommitError};

use crate::{context::Context, report::CliError, ui::text};

/// Entries by which the top folder of another program's project is recognised.
const PROJECT_SIGNS: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// Why a new store in a folder may be a mistake.
#[derive(Debug, PartialEq, Eq)]
enum Doubt {
    /// The folder is `/`.
    WholeMachine,
    /// The folder is the user's home folder.
    Home,
    /// The folder is in a project, whose top folder has the sign of one.
    InProject { top: PathBuf, sign: &'static str },
}

/// If the folder of `store` raises a doubt, asks whether to create the store. Without a terminal,
/// prints where in a project the store will be. A folder that exists under the name of the store was
/// created on purpose, or by an interrupted command.
///
/// # Errors
/// [`CliError::StoreDeclined`], [`CliError::NoStoreThere`] without a terminal, or
/// [`CommitError::Blocked`] after Ctrl-C.
pub(super) fn confirm(store: &Path, cx: &Context) -> Result<(), CliError> {
    if fs_err::symlink_metadata(store).is_ok() {
        return Ok(());
    }
    let folder = folder_of(store);
    let folder = fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let Some(doubt) = doubt(&folder, cx.home(), cx.ceilings()) else { return Ok(()) };
    let shown = |path: &Path| text::line(path.as_os_str().as_encoded_bytes());
    let is_project = matches!(doubt, Doubt::InProject { .. });
    let place = match doubt {
        Doubt::WholeMachine => "in the root folder of this machine".to_owned(),
        Doubt::Home => "in your home folder".to_owned(),
        Doubt::InProject { top, sign } => {
            format!("inside the project {}, which has a `{sign}`", shown(&top))
        }
    };
    let store = shown(&folder.join(store.file_name().unwrap_or(store.as_os_str())));
    if !cx.ui().is_interactive() {
        if !is_project {
            return Err(CliError::NoStoreThere { place });
        }
        cx.ui().status(format_args!("Creating the store {store} {place}"));
        return Ok(());
    }
    let question = format!(
        "No store was found in this folder or above. The new store {store} would be {place}.\nCreate it? [y/N] "
    );
    if cx.ui().ask(&question, &|| cx.cancelled()) {
        return Ok(());
    }
    Err(match cx.cancelled() {
        true => CommitError::Blocked(Blocked::Interrupted).into(),
        false => CliError::StoreDeclined { store },
    })
}

/// Returns the doubt that a new store in `folder` raises. The search for a project above ends
/// before the first of the `ceilings`.
fn doubt(folder: &Path, home: Option<&Path>, ceilings: &[PathBuf]) -> Option<Doubt> {
    let real = |path: &Path| fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if folder.parent().is_none() {
        return Some(Doubt::WholeMachine);
    }
    if home.is_some_and(|home| real(home) == folder) {
        return Some(Doubt::Home);
    }
    let sign_of = |folder: &Path| {
        PROJECT_SIGNS.into_iter().find(|sign| folder.join(sign).symlink_metadata().is_ok())
    };
    if sign_of(folder).is_some() {
        return None;
    }
    let ceilings: Vec<PathBuf> = ceilings.iter().map(|ceiling| real(ceiling)).collect();
    let above = folder.ancestors().skip(1);
    let mut above = above.take_while(|above| !ceilings.iter().any(|ceiling| ceiling == above));
    above.find_map(|top| Some(Doubt::InProject { top: top.to_owned(), sign: sign_of(top)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_store_raises_a_doubt_in_home_in_the_root_and_below_the_top_of_a_project() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        let home = root.join("home");
        for path in ["home/docs", "home/code/.git", "home/code/src/deep", "home/code/vendor/.hg"] {
            fs_err::create_dir_all(root.join(path)).unwrap();
        }
        // The `.git` of a work tree is a file.
        fs_err::create_dir_all(home.join("tree/src")).unwrap();
        fs_err::write(home.join("tree/.git"), "gitdir: elsewhere").unwrap();
        let none = [root.clone()];
        let doubt = |path: &str| doubt(&home.join(path), Some(&home), &none);
        let in_project = |top: &str| Some(Doubt::InProject { top: home.join(top), sign: ".git" });
        assert_eq!(doubt("docs"), None);
        assert_eq!(doubt("code"), None, "the top of a project");
        assert_eq!(doubt("code/vendor"), None, "the top of a project in a project");
        assert_eq!(doubt("code/src/deep"), in_project("code"));
        assert_eq!(doubt("tree/src"), in_project("tree"));
        let is_home = super::doubt(&home, Some(&root.join("home/docs/..")), &none);
        assert_eq!(is_home, Some(Doubt::Home));
        assert_eq!(super::doubt(Path::new("/"), None, &none), Some(Doubt::WholeMachine));
        let ceiling = [home.join("code")];
        assert_eq!(super::doubt(&home.join("code/src"), None, &ceiling), None);
    }
}
