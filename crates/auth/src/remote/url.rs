//! URLs of servers, with user names and passwords.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use barid_engine::amqp::Secret;
use percent_encoding::percent_decode_str;
use url::Url;

/// Maximum length of a file with a URL or a secret, in bytes.
const FILE_MAX: u64 = 64 * 1024;

/// The address of a server, and how to log in there.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub(crate) scheme: Box<str>,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    pub(crate) user: Option<Box<str>>,
    pub(crate) password: Option<Secret>,
    /// The path without its leading slash: the name of a database, or its number.
    pub(crate) path: Box<str>,
}

impl ServerUrl {
    /// Parses a URL. `schemes`: the schemes that it may have, each with its default port. Messages of errors
    /// contain no part of the URL.
    pub(crate) fn parse(url: &Secret, schemes: &[(&str, u16)]) -> Result<Self, String> {
        let expected = || {
            let examples: Vec<_> = schemes.iter().map(|(name, _)| format!("{name}://")).collect();
            format!(
                "not a URL of the form {}user:password@host:port/database, with %XX for special characters",
                examples.join(" or ")
            )
        };
        let parsed = Url::parse(url.expose().trim()).map_err(|_| expected())?;
        let scheme = schemes.iter().find(|(name, _)| *name == parsed.scheme());
        let (scheme, default_port) = scheme.ok_or_else(expected)?;
        let host = match parsed.host() {
            Some(url::Host::Domain(name)) if !name.is_empty() => name.to_owned(),
            Some(url::Host::Ipv4(address)) => address.to_string(),
            Some(url::Host::Ipv6(address)) => address.to_string(),
            _ => return Err(expected()),
        };
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(
                "the URL has parameters after `?` or `#`; settings have keys of their own".into()
            );
        }
        let path = decode(parsed.path().trim_start_matches('/'))?;
        let user = Some(decode(parsed.username())?).filter(|user| !user.is_empty());
        let password = parsed.password().map(decode).transpose()?;
        Ok(Self {
            scheme: (*scheme).into(),
            host: decode(&host)?.into(),
            port: parsed.port().unwrap_or(*default_port),
            user: user.map(Into::into),
            password: password.filter(|password| !password.is_empty()).map(Secret::new),
            path: path.into(),
        })
    }
}

/// Shows neither user nor password.
impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerUrl").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// Decodes a part of a URL. NUL ends texts in the protocol of MySQL, so no part can have it.
fn decode(part: &str) -> Result<String, String> {
    match percent_decode_str(part).decode_utf8() {
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        _ => Err("a part of the URL is not UTF-8, or contains NUL".into()),
    }
}

/// Returns the URL that the settings give, either themselves or in a file.
pub(crate) fn given(url: Option<&Secret>, file: Option<&Path>) -> Result<Secret, String> {
    match (url, file) {
        (Some(url), None) => Ok(url.clone()),
        (None, Some(file)) => {
            let text = read(file)?;
            String::from_utf8(text)
                .map(|text| Secret::new(text.trim()))
                .map_err(|_| format!("{}: the file is not text", file.display()))
        }
        _ => Err("needs either `url_file`, a file that contains the URL, or `url`".into()),
    }
}

/// Reads a small file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut contents = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut contents))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    match contents.len() as u64 {
        0..=FILE_MAX => Ok(contents),
        _ => Err(format!("{}: has more than {FILE_MAX} bytes", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MYSQL: &[(&str, u16)] = &[("mysql", 3306)];

    fn parse(url: &str) -> Result<ServerUrl, String> {
        ServerUrl::parse(&Secret::new(url), MYSQL)
    }

    #[test]
    fn all_parts_are_found_and_decoded() {
        let url = parse("mysql://b%40rid:p%3Aw%2F%20%25@db.example:13306/users%2F1\n").unwrap();
        assert_eq!((&*url.host, url.port, &*url.path), ("db.example", 13306, "users/1"));
        assert_eq!(url.user.as_deref(), Some("b@rid"));
        assert_eq!(url.password.as_ref().unwrap().expose(), "p:w/ %");
        let url = parse("mysql://[::1]").unwrap();
        assert_eq!((&*url.host, url.port, url.user, &*url.path), ("::1", 3306, None, ""));
    }

    #[test]
    fn an_error_does_not_show_the_password() {
        for wrong in [
            "postgres://u:hidden@h/d",
            "mysql://u:hidden@/d",
            "mysql:u:hidden",
            "u:hidden@h:99",
            "mysql://u:hidden@h:99999/d",
            "mysql://u:hidden%00@h/d",
            "mysql://u:hidden%ff@h/d",
            "mysql://u:hidden@h/d?ssl-mode=REQUIRED",
            "",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(!error.contains("hidden"), "{error}");
        }
        let url = parse("mysql://someone:hidden@h/d").unwrap();
        assert!(!format!("{url:?}").contains("hidden"));
    }

    #[test]
    fn the_url_is_in_the_settings_or_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "mysql://h/d\n").unwrap();
        let url = Secret::new("mysql://other/d");
        assert_eq!(given(None, Some(file.path())).unwrap().expose(), "mysql://h/d");
        assert_eq!(given(Some(&url), None).unwrap(), url);
        assert!(given(Some(&url), Some(file.path())).is_err() && given(None, None).is_err());
        std::fs::write(file.path(), "x".repeat(65_537)).unwrap();
        assert!(given(None, Some(file.path())).unwrap_err().contains("more than"));
        assert!(given(None, Some(Path::new("/nowhere"))).unwrap_err().contains("/nowhere"));
    }
}
