//! Any bytes as a request, a response, a notification, a timestamp or a pattern of SCAN: the decoders do not
//! panic. What is decoded can be encoded, and decodes again to the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use statestore_proto::{Command, Glob, Hlc, Notification, Reply};

fuzz_target!(|input: &[u8]| {
    let mut bytes = Vec::new();
    if let Ok(command) = Command::decode(input) {
        command.encode(&mut bytes);
        assert_eq!(Command::decode(&bytes), Ok(command));
        assert!(bytes.len() <= input.len(), "nothing is added to what a client wrote");
        if let Command::Scan { pattern, token: Some(key) } = command {
            check_glob(pattern, key);
        }
    }
    if let Some(reply) = Reply::decode(input) {
        bytes.clear();
        reply.encode(&mut bytes);
        assert_eq!(Reply::decode(&bytes), Some(reply));
    }
    if let Some(notification) = Notification::decode(input) {
        bytes.clear();
        notification.encode(&mut bytes);
        assert_eq!(Notification::decode(&bytes), Some(notification));
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(hlc) = Hlc::parse(text)
    {
        assert_eq!(Hlc::parse(&hlc.to_string()), Ok(hlc));
    }
});

fn check_glob(pattern: &[u8], key: &[u8]) {
    let glob = Glob::parse(pattern);
    if glob.matches(key) {
        assert!(key.starts_with(glob.literal_prefix()));
    }
    let with = |name: &str| (name != "none").then(|| key.to_vec());
    let literal = Glob::parse_with(b"{key}", with).expect("the name is known");
    assert!(literal.matches(key), "what is substituted stands for itself");
    assert_eq!(literal.literal_prefix(), key);
    if !pattern.contains(&b'{') {
        assert_eq!(Glob::parse_with(pattern, with), Some(glob));
    } else if let Some(other) = Glob::parse_with(pattern, with) {
        other.matches(key);
    }
}
