//! Keys of managed objects, which operators change while the broker runs.

use super::{TENANT_LEN_MAX, begin, tenant};
use crate::durable::records::RecordError;
use crate::durable::wire::utf8;

/// Maximum length of the name of a managed object, in bytes, with its tenant. User names in CONNECT may be longer;
/// this bound keeps the memory of a million objects small.
pub const MANAGED_NAME_MAX: usize = 1_024;

/// A kind of managed objects. The numbers are part of the format: none is reused for another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ManagedKind {
    /// A user, by user name.
    User = 1,
    /// The settings of a tenant, by the name of the tenant.
    Tenant = 2,
    /// A ban, by its id.
    Ban = 3,
    /// A token of the admin API, by its id.
    Token = 4,
    /// A slot of the cluster that was moved to another broker, by its number.
    Slot = 5,
}

/// The key of a managed object.
///
/// The name of an object is `{tenant}/{name}` if it belongs to a tenant, or a text without a slash. Settings of a tenant
/// have the name of the tenant. The key has the two parts of the name, so that all objects of a tenant lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedKey<'a> {
    /// The tenant of the object; empty: the object belongs to no tenant.
    pub tenant: &'a str,
    /// The kind of the object.
    pub kind: ManagedKind,
    /// The name within the tenant; empty for the settings of a tenant.
    pub name: &'a str,
}

impl ManagedKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::User, Self::Tenant, Self::Ban, Self::Token, Self::Slot];

    /// Returns the name of the kind, in the singular.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Tenant => "tenant",
            Self::Ban => "ban",
            Self::Token => "token",
            Self::Slot => "slot",
        }
    }
}

impl<'a> ManagedKey<'a> {
    /// Returns the key of the object with this name. `None`: no object can have it, because the name or its part behind
    /// the slash is empty, or because it is longer than [`MANAGED_NAME_MAX`].
    pub fn of(kind: ManagedKind, name: &'a str) -> Option<Self> {
        let key = match (kind, name.split_once('/')) {
            (ManagedKind::Tenant, None) => Self { tenant: name, kind, name: "" },
            (ManagedKind::Tenant, Some(_)) | (_, Some(("", _))) => return None,
            (_, Some((tenant, name))) => Self { tenant, kind, name },
            (_, None) => Self { tenant: "", kind, name },
        };
        key.check().is_ok().then_some(key).filter(|key| !key.is_mark())
    }

    /// Returns the key of the *mark* of a kind, which is not an object: its record says that the shard has or had an
    /// object of the kind.
    pub fn mark(kind: ManagedKind) -> Self {
        Self { tenant: "", kind, name: "" }
    }

    /// Whether this is the key of a mark.
    pub fn is_mark(&self) -> bool {
        self.tenant.is_empty() && self.name.is_empty()
    }

    /// Returns the name of the object with its tenant, as [`Self::of`] takes it.
    pub fn full_name(&self) -> String {
        match (self.tenant, self.name) {
            ("", name) => name.into(),
            (tenant, "") => tenant.into(),
            (tenant, name) => format!("{tenant}/{name}"),
        }
    }

    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.push(self.kind as u8);
        key.extend_from_slice(self.name.as_bytes());
    }

    /// Reads a key of [`MANAGED`](super::MANAGED).
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        let kind = key.u8()?;
        let kind = ManagedKind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = kind.ok_or(RecordError::Malformed("an object has an unknown kind"))?;
        let read = Self { tenant, kind, name: utf8(key.rest())? };
        read.check().map(|()| read)
    }

    fn check(&self) -> Result<(), RecordError> {
        let is_settings = self.kind == ManagedKind::Tenant;
        if !self.is_mark() && is_settings != self.name.is_empty() {
            return Err(RecordError::Malformed("the name of an object does not fit its kind"));
        }
        // Otherwise two objects could have the same full name.
        if self.tenant.contains('/') || self.tenant.is_empty() && self.name.contains('/') {
            return Err(RecordError::Malformed("the name of an object has a slash too many"));
        }
        let slash = usize::from(!self.tenant.is_empty() && !self.name.is_empty());
        let is_long = self.tenant.len() + slash + self.name.len() > MANAGED_NAME_MAX;
        if is_long || self.tenant.len() > TENANT_LEN_MAX {
            return Err(RecordError::Malformed("the name of an object is too long"));
        }
        Ok(())
    }
}
