//! `identity.toml`: the host's private key.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use holdover_hip::identity::{Algorithm, IdentityError, KeyPair};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{WriteError, replace};
use crate::random::SystemRandom;

const FILE: &str = "identity.toml";
/// Readable and writable by its owner only.
const MODE: u32 = 0o600;
/// The longest file: an RSA key of 4,096 bits has 1,024 digits.
const MAX_LEN: u64 = 16 << 10;

/// Algorithms by their names in files and on the command line.
const NAMES: [(&str, Algorithm); 4] = [
    ("ed25519", Algorithm::Ed25519),
    ("ecdsa-p256", Algorithm::EcdsaP256),
    ("ecdsa-p384", Algorithm::EcdsaP384),
    ("rsa", Algorithm::Rsa),
];

/// Why there is no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityFileError {
    /// It does not exist.
    #[error("this host has no identity yet ({} is missing): sudo holdover hip keygen", path.display())]
    None {
        /// The file.
        path: PathBuf,
    },
    /// It exists already.
    #[error("{} exists, and peers know this host by it; to replace it, remove the file first", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Permission to read it is missing.
    #[error("{} is for root only: sudo", path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Others have permission to read the key.
    #[error("the key in {} is readable by others (mode {mode:04o}): chmod 600 it, and consider who may have read it", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is not a valid identity file. Its content is not quoted: it may be a key.
    #[error("{} is not a valid identity file of \"holdover hip keygen\": {problem}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: &'static str,
    },
    /// The key is invalid.
    #[error("invalid key in {}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: IdentityError,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    algorithm: String,
    hit: String,
    secret: Zeroizing<String>,
}

/// A new key pair, of the kind with this name: `ed25519`, `ecdsa-p256`, `ecdsa-p384` or `rsa`; `None` for other names.
pub fn generate(name: &str) -> Option<KeyPair> {
    let (_, algorithm) = NAMES.into_iter().find(|(it, _)| *it == name)?;
    Some(KeyPair::generate(algorithm, &mut SystemRandom))
}

/// Stores a key in the directory, created if missing.
///
/// # Errors
/// [`IdentityFileError::Exists`], if there is one already: peers know the host by it.
pub fn write_identity(directory: &Path, pair: &KeyPair) -> Result<PathBuf, IdentityFileError> {
    let path = directory.join(FILE);
    let algorithm = pair.identity().algorithm();
    let name = NAMES.into_iter().find(|(_, it)| *it == algorithm).map_or("", |(name, _)| name);
    let secret: Zeroizing<String> = Zeroizing::new(pair.secret().iter().map(|byte| format!("{byte:02x}")).collect());
    let text = Zeroizing::new(format!(
        "# The private key of this host's identity. Whoever has it can pretend to be this host.\n\
         algorithm = \"{name}\"\nhit = \"{}\"\nsecret = \"{}\"\n",
        pair.hit(),
        *secret
    ));
    replace(&path, MODE, &text, true).map_err(|error| match error.source.kind() {
        io::ErrorKind::AlreadyExists => IdentityFileError::Exists { path: path.clone() },
        _ => error.into(),
    })?;
    Ok(path)
}

/// Reads the key of the directory.
///
/// # Errors
/// [`IdentityFileError`] has the remedy.
pub fn read_identity(directory: &Path) -> Result<KeyPair, IdentityFileError> {
    let path = directory.join(FILE);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => IdentityFileError::None { path: path.clone() },
        io::ErrorKind::PermissionDenied => IdentityFileError::NotPermitted { path: path.clone() },
        _ => IdentityFileError::Read { path: path.clone(), source },
    };
    let file = fs::File::open(&path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(IdentityFileError::Mode { path, mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_LEN).read_to_string(&mut text).map_err(failed)?;
    let wrong = |problem| IdentityFileError::Contents { path: path.clone(), problem };
    let contents: Contents =
        toml::from_str(&text).map_err(|_| wrong("expected algorithm, hit and secret, and nothing else"))?;
    let algorithm = NAMES.into_iter().find(|(name, _)| *name == contents.algorithm);
    let (_, algorithm) = algorithm.ok_or_else(|| wrong("unknown algorithm"))?;
    let secret = unhex(&contents.secret).ok_or_else(|| wrong("the secret must be hexadecimal digits"))?;
    let pair = KeyPair::from_secret(algorithm, &secret);
    let pair = pair.map_err(|source| IdentityFileError::Key { path: path.clone(), source })?;
    if pair.hit().to_string() != contents.hit {
        return Err(wrong("the HIT does not match the key"));
    }
    Ok(pair)
}

fn unhex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok());
    bytes.collect::<Option<Vec<u8>>>().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::Place;
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_never_replaced() {
        for name in ["ed25519", "ecdsa-p256", "ecdsa-p384"] {
            let place = Place::new(&format!("identity-{name}"));
            assert!(matches!(read_identity(&place.0), Err(IdentityFileError::None { .. })));
            let pair = generate(name).unwrap();
            let path = write_identity(&place.0.join("sub"), &pair).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
            assert_eq!(read_identity(&place.0.join("sub")).unwrap().hit(), pair.hit());
            let again = write_identity(&place.0.join("sub"), &generate(name).unwrap());
            assert!(matches!(again, Err(IdentityFileError::Exists { .. })));
            assert_eq!(read_identity(&place.0.join("sub")).unwrap().hit(), pair.hit());
        }
        assert!(generate("dsa").is_none());
    }

    #[test]
    fn errors_of_a_key_do_not_show_the_key() {
        let place = Place::new("identity-wrong");
        let path = write_identity(&place.0, &generate("ed25519").unwrap()).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_identity(&place.0), Err(IdentityFileError::Mode { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let secret = good.split('"').nth(5).unwrap();
        let other = generate("ed25519").unwrap().hit().to_string();
        let hit = good.split('"').nth(3).unwrap();
        for wrong in [
            String::new(),
            "\u{0}".into(),
            good.replace("ed25519", "dsa"),
            good.replace("ed25519", "rsa"),
            good.replace(hit, &other),
            good.replace(secret, &secret[1..]),
            good.replace(secret, "+1"),
            good.replace("secret", "sacred"),
            format!("{good}more = 1\n"),
            "x".repeat(100_000),
        ] {
            fs::write(&path, &wrong).unwrap();
            let error = read_identity(&place.0).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains(secret), "{text}");
            assert!(
                matches!(error, IdentityFileError::Contents { .. } | IdentityFileError::Key { .. }),
                "{wrong}: {error:?}"
            );
        }
    }
}
