//! A disk in memory that distinguishes durable content from content that is not durable.

use super::super::disk::{Disk, File};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Random numbers from a seed (SplitMix64).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// A simulated disk. Clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<World>>);

struct World {
    random: Random,
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    /// Operations until one fails, counted down by every operation that changes something.
    fails_in: Option<u64>,
    /// Whether all operations after the failed one fail, too.
    loses_power: bool,
    /// Incremented when the process ends or the power returns: files opened before cannot be used.
    life: u64,
    operations: u64,
    /// Maximum number of bytes on the disk.
    capacity: u64,
    /// Whether creating a file fails, as if the process had no descriptors left.
    opens_nothing: bool,
}

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

enum Change {
    Write(usize, Vec<u8>),
    Len(usize),
}

enum NameChange {
    Add(String, usize),
    Remove(String),
    Rename(String, String),
}

/// The unit that reaches the disk in whole or not at all, in bytes.
const SECTOR: usize = 512;

impl SimDisk {
    pub fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(World {
            random: Random(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            fails_in: None,
            loses_power: false,
            life: 0,
            operations: 0,
            capacity: u64::MAX,
            opens_nothing: false,
        })))
    }

    /// Loses power at the `operation`-th change from now.
    pub fn lose_power_in(&self, operation: u64) {
        let mut world = self.0.lock();
        (world.fails_in, world.loses_power) = (Some(operation), true);
    }

    /// Fails the `operation`-th change from now, and no other.
    pub fn fail_once_in(&self, operation: u64) {
        let mut world = self.0.lock();
        (world.fails_in, world.loses_power) = (Some(operation), false);
    }

    /// Sets whether the process is at its limit of open files.
    pub fn set_opens_nothing(&self, opens_nothing: bool) {
        self.0.lock().opens_nothing = opens_nothing;
    }

    /// Ends the process; the computer goes on.
    pub fn kill(&self) {
        let mut world = self.0.lock();
        world.life += 1;
        world.fails_in = None;
    }

    /// Restores power: durable content is there, and any part of the rest.
    pub fn restart(&self) {
        let mut world = self.0.lock();
        let world = &mut *world;
        world.life += 1;
        world.fails_in = None;
        for change in std::mem::take(&mut world.name_changes) {
            if world.random.coin() {
                change.apply(&mut world.durable_names);
            }
        }
        world.names = world.durable_names.clone();
        for file in &mut world.files {
            for change in std::mem::take(&mut file.changes) {
                change.apply_partly(&mut file.durable, &mut world.random);
            }
            file.now = file.durable.clone();
        }
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.0.lock().fails_in == Some(0)
    }

    /// The number of changes so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    pub fn set_capacity(&self, capacity: u64) {
        self.0.lock().capacity = capacity;
    }

    /// Bytes of all files.
    pub fn len(&self) -> u64 {
        let world = self.0.lock();
        world.names.values().map(|&file| world.files[file].now.len() as u64).sum()
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().names.keys().cloned().collect()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let world = self.0.lock();
        world.files[world.names[name]].now.clone()
    }

    /// Returns another disk with the same files, all durable.
    pub fn copy(&self) -> SimDisk {
        let copy = SimDisk::new(1);
        self.names().iter().for_each(|name| copy.set_bytes(name, self.bytes(name)));
        copy
    }

    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut world = self.0.lock();
        let file = world.files.len();
        let content = Content { now: bytes.clone(), durable: bytes, changes: Vec::new() };
        world.files.push(content);
        world.names.insert(name.to_owned(), file);
        world.durable_names.insert(name.to_owned(), file);
    }

    pub fn delete(&self, name: &str) {
        let mut world = self.0.lock();
        world.names.remove(name);
        world.durable_names.remove(name);
    }
}

impl World {
    /// Counts an operation. Returns an error if the operation is to fail.
    fn step(&mut self, life: u64) -> io::Result<()> {
        self.alive(life)?;
        self.operations += 1;
        match &mut self.fails_in {
            None => Ok(()),
            Some(left) if *left > 1 => {
                *left -= 1;
                Ok(())
            }
            Some(_) => {
                if !self.loses_power {
                    self.fails_in = None;
                }
                Err(io::Error::other("the disk failed"))
            }
        }
    }

    fn alive(&self, life: u64) -> io::Result<()> {
        let off = self.fails_in == Some(0);
        if off || life != self.life { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Returns the error. If this operation loses the power, nothing works from now on.
    fn fail<T>(&mut self, error: io::Error) -> io::Result<T> {
        if self.fails_in.is_some() {
            self.fails_in = Some(0);
        }
        Err(error)
    }

    fn change_name(&mut self, life: u64, change: NameChange) -> io::Result<()> {
        if let Err(error) = self.step(life) {
            if self.life == life && self.random.coin() {
                change.apply(&mut self.names);
                self.name_changes.push(change);
            }
            return self.fail(error);
        }
        change.apply(&mut self.names);
        self.name_changes.push(change);
        Ok(())
    }

    fn change(&mut self, life: u64, file: usize, change: Change) -> io::Result<()> {
        let mut result = self.step(life);
        let grown = match &change {
            Change::Write(at, bytes) => at + bytes.len(),
            Change::Len(len) => *len,
        };
        let used: u64 = self.files.iter().map(|file| file.now.len() as u64).sum();
        let grows = grown.saturating_sub(self.files[file].now.len()) as u64;
        if grows > 0 && used + grows > self.capacity {
            result = result.and(Err(io::ErrorKind::StorageFull.into()));
        }
        match result {
            Ok(()) => {
                change.apply(&mut self.files[file].now);
                self.files[file].changes.push(change);
                Ok(())
            }
            Err(error) => {
                if self.life == life {
                    // Part of the change may have been made.
                    let part = change.part(&mut self.random);
                    part.apply(&mut self.files[file].now);
                    self.files[file].changes.push(part);
                }
                self.fail(error)
            }
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(at, written) => {
                if bytes.len() < at + written.len() {
                    bytes.resize(at + written.len(), 0);
                }
                bytes[*at..at + written.len()].copy_from_slice(written);
            }
            Change::Len(len) => bytes.resize(*len, 0),
        }
    }

    /// Returns the beginning of the change, in whole sectors.
    fn part(&self, random: &mut Random) -> Change {
        match self {
            Change::Write(at, written) => {
                let end = at + random.below(written.len() as u64 + 1) as usize;
                let len = if end == at + written.len() { end } else { end / SECTOR * SECTOR };
                Change::Write(*at, written[..len.saturating_sub(*at)].to_vec())
            }
            Change::Len(len) => Change::Len(*len),
        }
    }

    /// Applies a random choice of its sectors.
    fn apply_partly(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        match self {
            Change::Write(at, written) => {
                let mut from = 0;
                while from < written.len() {
                    let to = ((at + from) / SECTOR * SECTOR + SECTOR - at).min(written.len());
                    if random.coin() {
                        Change::Write(at + from, written[from..to].to_vec()).apply(bytes);
                    }
                    from = to;
                }
            }
            Change::Len(_) if random.coin() => self.apply(bytes),
            Change::Len(_) => (),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Add(name, file) => drop(names.insert(name.clone(), *file)),
            NameChange::Remove(name) => drop(names.remove(name)),
            NameChange::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

impl SimDisk {
    fn handle(&self, world: &World, file: usize) -> Arc<dyn File> {
        Arc::new(SimFile { disk: self.clone(), file, life: world.life })
    }
}

impl Disk for SimDisk {
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let world = self.0.lock();
        let file = *world.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(&world, file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut world = self.0.lock();
        if world.opens_nothing {
            return Err(io::Error::other("too many open files"));
        }
        let (life, file) = (world.life, world.files.len());
        world.files.push(Content::default());
        world.change_name(life, NameChange::Add(name.to_owned(), file))?;
        Ok(self.handle(&world, file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.0.lock();
        let life = world.life;
        world.change_name(life, NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.0.lock();
        let life = world.life;
        world.change_name(life, NameChange::Remove(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.0.lock();
        let world = &mut *world;
        if let Err(error) = world.step(world.life) {
            return world.fail(error);
        }
        world.durable_names = world.names.clone();
        world.name_changes.clear();
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let capacity = self.0.lock().capacity;
        Ok(capacity.saturating_sub(self.len()))
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
    life: u64,
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        let world = self.disk.0.lock();
        world.alive(self.life)?;
        Ok(world.files[self.file].now.len() as u64)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let world = self.disk.0.lock();
        world.alive(self.life)?;
        let rest = world.files[self.file].now.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> io::Result<()> {
        let change = Change::Write(at as usize, parts.concat());
        self.disk.0.lock().change(self.life, self.file, change)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.truncate(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk.0.lock().change(self.life, self.file, Change::Len(len as usize))
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.disk.0.lock();
        let world = &mut *world;
        let result = world.step(self.life);
        if world.life != self.life {
            return result;
        }
        let file = &mut world.files[self.file];
        match result {
            Ok(()) => {
                std::mem::take(&mut file.changes)
                    .iter()
                    .for_each(|change| change.apply(&mut file.durable));
                Ok(())
            }
            Err(error) => {
                // A part reached the disk. The rest can still be read, but will never be written.
                for change in std::mem::take(&mut file.changes) {
                    change.apply_partly(&mut file.durable, &mut world.random);
                }
                world.fail(error)
            }
        }
    }
}
