//! Who may do what: tokens from a file, and tokens of players that the game signs.
//!
//! The file has the SHA-256 of each token, not the token itself. Players' tokens are in no file:
//! the game signs them with a key that this process knows, and the signature is enough to check
//! them.

use crate::runtime::regular_file::{RegularFileError, read_text};
use hmac::{Hmac, Mac};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Bytes of a file of tokens: room for all of them, and for comments.
const TOKENS_BYTES_MAX: u64 = 1 << 20;

/// Tokens of a file.
const TOKENS_MAX: usize = 256;

/// Keys of a file: the one that signs, and those before it whose tokens have not expired.
const KEYS_MAX: usize = 4;

/// Bytes of a key, at least: as long as its signatures.
const KEY_BYTES_MIN: usize = 32;

/// Requests per second that a client may be allowed.
const RATE_MAX: u32 = 1_000_000;

/// How the signed tokens of players begin.
const PLAYER_PREFIX: &str = "player.";

/// Why there are no tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; check serve.tokens and the file's permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: RegularFileError,
    },
    /// It is not in the required form.
    #[error("{path}: {sentence}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What to do.
        sentence: String,
    },
}

/// What a token of the file is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Asking.
    Read,
    /// Posting events of any player who is in a zone.
    Command,
    /// Posting where players enter: `join`.
    Join,
    /// Posting events of the world: hunts, rules, ticks.
    World,
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    /// It is not known, or nobody who may has signed it.
    Unknown,
    /// The game has signed it, for a time that is over.
    Expired,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTokens {
    #[serde(default)]
    token: Vec<WrittenToken>,
    players: Option<WrittenPlayers>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenToken {
    name: String,
    sha256: String,
    scopes: BTreeSet<Scope>,
    requests_per_s: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPlayers {
    keys: Vec<String>,
    requests_per_s: u32,
}

/// A client that has shown who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// The token of this place in the file.
    Token(usize),
    /// A player, until this time.
    Player {
        /// The player.
        player_id: u64,
        /// Seconds since the Unix epoch.
        expires_s: u64,
    },
}

/// A token of the file.
#[derive(PartialEq, Eq)]
struct Token {
    sha256: [u8; 32],
    scopes: BTreeSet<Scope>,
    requests_per_s: u32,
}

/// Everybody who may ask.
#[derive(PartialEq, Eq)]
pub(crate) struct Tokens {
    tokens: Vec<Token>,
    player_keys: Vec<Vec<u8>>,
    player_requests_per_s: u32,
}

impl Tokens {
    /// The tokens of a file.
    pub(crate) fn load(path: &Path) -> Result<Tokens, AccessError> {
        let text = read_text(path, TOKENS_BYTES_MAX)
            .map_err(|source| AccessError::Read { path: path.to_owned(), source })?;
        Tokens::parse(&text)
            .map_err(|sentence| AccessError::Wrong { path: path.to_owned(), sentence })
    }

    /// The tokens of a text, or a sentence that says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Tokens, String> {
        let written: WrittenTokens = toml::from_str(text).map_err(|error| {
            let before = &text.as_bytes()[..error.span().map_or(0, |span| span.start)];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            // Errors must not show the file's secrets.
            format!("line {line}: {}; see docs/QUERIES.md", error.message())
        })?;
        let players = written.players.unwrap_or(WrittenPlayers { keys: vec![], requests_per_s: 1 });
        if written.token.len() > TOKENS_MAX || players.keys.len() > KEYS_MAX {
            return Err(format!("write at most {TOKENS_MAX} tokens and {KEYS_MAX} keys"));
        }
        if written.token.is_empty() && players.keys.is_empty() {
            return Err("write at least one token, or a key of the players".to_owned());
        }
        let rates = written.token.iter().map(|token| token.requests_per_s);
        if rates.chain([players.requests_per_s]).any(|rate| !(1..=RATE_MAX).contains(&rate)) {
            return Err(format!("write requests_per_s as a number from 1 to {RATE_MAX}"));
        }
        let mut tokens: Vec<Token> = Vec::new();
        for WrittenToken { name, sha256, scopes, requests_per_s } in written.token {
            let sha256 = bytes_of(&sha256).and_then(|bytes| bytes.try_into().ok());
            let sha256 = sha256.ok_or(format!("token `{name}`: write sha256 as 64 hex digits"))?;
            if scopes.is_empty() {
                return Err(format!("token `{name}`: write scopes, as in [\"read\"]"));
            }
            if tokens.iter().any(|token| token.sha256 == sha256) {
                return Err(format!("token `{name}`: another one has the sha256; give it its own"));
            }
            tokens.push(Token { sha256, scopes, requests_per_s });
        }
        let keys = players.keys.iter().map(|key| bytes_of(key));
        let keys: Option<Vec<_>> = keys.collect();
        let keys = keys.filter(|keys| keys.iter().all(|key| key.len() >= KEY_BYTES_MIN));
        let player_keys = keys.ok_or("players: write each key as 64 hex digits or more")?;
        Ok(Tokens { tokens, player_keys, player_requests_per_s: players.requests_per_s })
    }

    /// The client that this token belongs to.
    pub(crate) fn client(&self, token: &str, now_s: u64) -> Result<Client, TokenRefusal> {
        if let Some(signed) = token.strip_prefix(PLAYER_PREFIX) {
            return match self.player(signed).ok_or(TokenRefusal::Unknown)? {
                Client::Player { expires_s, .. } if expires_s <= now_s => {
                    Err(TokenRefusal::Expired)
                }
                player => Ok(player),
            };
        }
        let shown = Sha256::digest(token.as_bytes());
        let is_shown = |token: &Token| bool::from(token.sha256.ct_eq(shown.as_slice()));
        self.tokens.iter().position(is_shown).map(Client::Token).ok_or(TokenRefusal::Unknown)
    }

    /// The player whose token the game has signed.
    fn player(&self, signed: &str) -> Option<Client> {
        let (said, signature) = signed.rsplit_once('.')?;
        let signature = bytes_of(signature)?;
        let is_signed = |key: &Vec<u8>| {
            let mac = mac(key, said);
            mac.verify_slice(&signature).is_ok()
        };
        if !self.player_keys.iter().any(is_signed) {
            return None;
        }
        let (player_id, expires_s) = said.split_once('.')?;
        let (player_id, expires_s) = (player_id.parse().ok()?, expires_s.parse().ok()?);
        (player_id != 0).then_some(Client::Player { player_id, expires_s })
    }

    /// Requests per second that a client may send.
    pub(crate) fn requests_per_s(&self, client: Client) -> u32 {
        match client {
            Client::Token(at) => self.tokens[at].requests_per_s,
            Client::Player { .. } => self.player_requests_per_s,
        }
    }

    /// Whether the client's token allows this; a player's allows only what is its own.
    pub(crate) fn has(&self, client: Client, scope: Scope) -> bool {
        matches!(client, Client::Token(at) if self.tokens[at].scopes.contains(&scope))
    }
}

/// The token of a player, as the game signs it.
#[cfg(test)]
pub(crate) fn player_token(key: &[u8], player_id: u64, expires_s: u64) -> String {
    let said = format!("{player_id}.{expires_s}");
    let mut token = format!("{PLAYER_PREFIX}{said}.");
    for byte in mac(key, &said).finalize().into_bytes() {
        token += &format!("{byte:02x}");
    }
    token
}

fn mac(key: &[u8], said: &str) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("a key of any length").chain_update(said)
}

/// Bytes of hex digits.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_hex.then(|| (0..text.len()).step_by(2).map(byte).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of `abc` (FIPS 180-2, B.1).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn file(token: &str, players: &str) -> String {
        format!("[[token]]\nname = \"page\"\n{token}\n[players]\n{players}\n")
    }

    fn whole() -> Tokens {
        let token = format!("sha256 = \"{ABC}\"\nscopes = [\"read\"]\nrequests_per_s = 5");
        let keys = format!("keys = [\"{}\", \"{}\"]\nrequests_per_s = 2", "0b".repeat(32), ABC);
        Tokens::parse(&file(&token, &keys)).unwrap()
    }

    #[test]
    fn a_token_is_who_has_its_hash_in_the_file() {
        let tokens = whole();
        assert_eq!(tokens.client("abc", 0), Ok(Client::Token(0)));
        assert_eq!(tokens.client("abd", 0), Err(TokenRefusal::Unknown));
        assert_eq!(tokens.client(ABC, 0), Err(TokenRefusal::Unknown));
        assert!(tokens.has(Client::Token(0), Scope::Read));
        assert!(!tokens.has(Client::Token(0), Scope::Command));
        assert_eq!(tokens.requests_per_s(Client::Token(0)), 5);
    }

    #[test]
    fn a_player_s_token_is_good_for_this_player_until_it_expires_by_any_key() {
        let tokens = whole();
        for key in [vec![0x0b; 32], bytes_of(ABC).unwrap()] {
            let token = player_token(&key, 7, 1_000);
            let player = Client::Player { player_id: 7, expires_s: 1_000 };
            assert_eq!(tokens.client(&token, 999), Ok(player));
            assert_eq!(tokens.client(&token, 1_000), Err(TokenRefusal::Expired));
            assert!(!tokens.has(player, Scope::Read) && !tokens.has(player, Scope::Command));
            for forged in [
                token.replace("7.1000", "8.1000"),
                token.replace("7.1000", "7.9000"),
                token.replace("7.1000", "07.1000"),
                token[..token.len() - 2].to_owned(),
                format!("{token}00"),
                player_token(&[1; 32], 7, 1_000),
                player_token(&key, 0, 1_000),
                "player.7.1000.".to_owned(),
                "player.".to_owned(),
            ] {
                assert_eq!(tokens.client(&forged, 0), Err(TokenRefusal::Unknown), "{forged}");
            }
        }
    }

    /// The second case of RFC 4231 is the form of a signature.
    #[test]
    fn a_player_s_token_is_signed_as_the_documentation_says() {
        let token = player_token(b"Jefe", 7, 1_767_225_600);
        let (said, signature) = token.rsplit_once('.').unwrap();
        assert_eq!((said, signature.len()), ("player.7.1767225600", 64));
        let known = mac(b"Jefe", "what do ya want for nothing?").finalize().into_bytes();
        let known: String = known.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(known, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_what_to_do_and_without_what_it_has() {
        let rest = "scopes = [\"read\"]\nrequests_per_s = 5";
        let cases = [
            ("".to_owned(), "at least one token"),
            (file(&format!("sha256 = \"secret\"\n{rest}"), ""), "line"),
            (format!("[[token]]\nname = \"a\"\nsha256 = \"secret\"\n{rest}"), "64 hex digits"),
            (
                format!(
                    "[[token]]\nname = \"a\"\nsha256 = \"{ABC}\"\nscopes = []\n{}",
                    &rest[18..]
                ),
                "write scopes",
            ),
            (format!("[[token]]\nname = \"a\"\nsha256 = \"{ABC}\"\nscopes = [\"all\"]"), "line 4"),
            ("[players]\nkeys = [\"secret\"]\nrequests_per_s = 1".to_owned(), "each key"),
            ("[players]\nkeys = []\nrequests_per_s = 0".to_owned(), "at least one token"),
            (format!("[players]\nkeys = [\"{ABC}\"]\nrequests_per_s = 0"), "requests_per_s"),
            (
                format!("[[token]]\nname = \"a\"\nsha256 = \"{ABC}\"\n{rest}\n").repeat(2),
                "give it its own",
            ),
        ];
        for (text, expected) in cases {
            let sentence = Tokens::parse(&text).err().expect("it is wrong");
            assert!(sentence.contains(expected), "{text}: {sentence}");
            assert!(!sentence.contains("secret"), "{sentence}");
        }
    }
}
