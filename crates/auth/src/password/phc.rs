//! The PHC string format: `$name$v=version$key=value,…$salt$output`.

use data_encoding::BASE64_NOPAD;

use super::{OUTPUT_MAX, OUTPUT_MIN};

/// A hash in PHC string format, without its name.
pub(super) struct Phc<'a> {
    pub version: Option<u32>,
    pub parameters: &'a str,
    pub salt: Box<[u8]>,
    pub output: Box<[u8]>,
}

impl<'a> Phc<'a> {
    /// Reads what follows the name. `None`: it has not the form, no salt, or an output of another length than
    /// hashes have.
    pub fn read(text: &'a str) -> Option<Self> {
        let mut parts: Vec<_> = text.splitn(5, '$').collect();
        let version = match parts.first().and_then(|first| first.strip_prefix("v=")) {
            Some(version) => Some(number(version)?),
            None => None,
        };
        if version.is_some() {
            parts.remove(0);
        }
        let [parameters, salt, output] = parts[..] else { return None };
        let (salt, output) = (base64(salt)?, base64(output)?);
        let is_fit = !salt.is_empty() && (OUTPUT_MIN..=OUTPUT_MAX).contains(&output.len());
        is_fit.then_some(Self { version, parameters, salt, output })
    }

    /// Returns the values of the parameters, which must be these, in this order.
    pub fn values<const N: usize>(&self, keys: [&str; N]) -> Option<[u32; N]> {
        let mut values = [0; N];
        let mut parameters = self.parameters.split(',');
        for (key, value) in keys.into_iter().zip(&mut values) {
            let (found, text) = parameters.next()?.split_once('=')?;
            *value = if found == key { number(text)? } else { return None };
        }
        parameters.next().is_none().then_some(values)
    }
}

/// Reads a decimal number without sign and leading zeros.
pub(super) fn number(text: &str) -> Option<u32> {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

/// Reads Base64 without padding. The library passlib writes a dot in place of `+`.
fn base64(text: &str) -> Option<Box<[u8]>> {
    let text = text.replace('.', "+");
    BASE64_NOPAD.decode(text.as_bytes()).ok().map(Vec::into_boxed_slice)
}
