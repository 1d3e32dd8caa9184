//! Reading mosquitto.conf: lines with options, and the listeners and connections that they belong to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context as _;

use super::notes::{Notes, Place};
use super::options;

/// A line with an option.
#[derive(Clone, Debug)]
pub struct Line {
    pub place: Place,
    pub name: String,
    /// Everything behind the name, without the spaces around it.
    pub value: String,
}

impl Line {
    /// Returns the first word of the value. mosquitto ignores what follows a number, a switch or a word.
    pub fn word(&self) -> &str {
        self.value.split(' ').find(|word| !word.is_empty()).unwrap_or_default()
    }

    /// Reads a switch. Adds a note if it is neither on nor off.
    pub fn switch(&self, notes: &mut Notes) -> Option<bool> {
        match self.word() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => {
                notes.at(&self.place, &self.name, "the value is neither true nor false");
                None
            }
        }
    }

    /// Reads a whole number. Adds a note if it is none.
    pub fn number(&self, notes: &mut Notes) -> Option<i64> {
        let number = self.word().parse().ok();
        if number.is_none() {
            notes.at(&self.place, &self.name, "the value is not a number");
        }
        number
    }

    /// Adds a note that the option has no counterpart.
    pub fn leave(&self, notes: &mut Notes) {
        notes.at(&self.place, &self.name, options::reason(&self.name));
    }
}

/// A listener and its options.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The line that declares it; `None`: the one that mosquitto has if none is declared.
    pub place: Option<Place>,
    pub port: String,
    pub host: Option<String>,
    pub options: Vec<Line>,
}

impl Listener {
    fn by_default() -> Self {
        Self { place: None, port: "1883".into(), host: None, options: Vec::new() }
    }

    /// Returns the last line with an option.
    pub fn option(&self, name: &str) -> Option<&Line> {
        self.options.iter().rfind(|line| line.name == name)
    }
}

/// What the next lines of a file belong to. A file that is included begins with nothing, and the file that
/// includes it goes on where it was.
#[derive(Default)]
struct Cursor {
    listener: Option<usize>,
    /// The line of a connection, and the number of its options.
    connection: Option<(Line, u64)>,
}

/// The contents of mosquitto.conf and the files that it includes.
#[derive(Debug)]
pub struct Conf {
    /// Options that belong to no listener.
    pub global: Vec<Line>,
    pub listeners: Vec<Listener>,
    /// Whether mosquitto listens on loopback only, because no listener is declared.
    pub is_local: bool,
    /// Whether each listener has its own users.
    pub per_listener: bool,
    directory: PathBuf,
}

impl Conf {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(path: &Path, notes: &mut Notes) -> anyhow::Result<Self> {
        let lines = all_lines(path, notes)?;
        let is_true = |line: &Line| {
            line.name == "per_listener_settings" && matches!(line.word(), "true" | "1")
        };
        let per_listener = lines.iter().any(|(_, line)| is_true(line));
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut conf = Self {
            global: Vec::new(),
            listeners: Vec::new(),
            is_local: true,
            per_listener,
            directory,
        };
        let mut default = None;
        let mut cursors = BTreeMap::<usize, Cursor>::new();
        for (file, line) in lines {
            conf.add(line, cursors.entry(file).or_default(), &mut default, notes);
        }
        for cursor in cursors.into_values() {
            note_connection(cursor.connection, notes);
        }
        if conf.listeners.is_empty() {
            conf.listeners.push(Listener::by_default());
        }
        Ok(conf)
    }

    /// Adds a line. `default` is the index of the listener that the options before the first `listener` of a file
    /// belong to.
    fn add(
        &mut self,
        line: Line,
        cursor: &mut Cursor,
        default: &mut Option<usize>,
        notes: &mut Notes,
    ) {
        let name = &*line.name;
        if name == "listener" {
            let mut words = line.value.split(' ').filter(|word| !word.is_empty());
            let port = words.next().unwrap_or_default().to_owned();
            let host = words.next().filter(|word| !word.starts_with('#')).map(str::to_owned);
            self.is_local = false;
            cursor.listener = Some(self.listeners.len());
            let place = Some(line.place);
            self.listeners.push(Listener { place, port, host, options: Vec::new() });
        } else if name == "port" || name == "bind_address" {
            self.is_local = false;
            let index = self.default_listener(default);
            cursor.listener = Some(index);
            let listener = &mut self.listeners[index];
            if name == "port" {
                listener.port = line.word().into();
            } else {
                listener.host = Some(line.value);
            }
            listener.place.get_or_insert(line.place);
        } else if name == "connection" {
            note_connection(cursor.connection.replace((line, 0)), notes);
        } else if options::is_of_bridge(name) {
            match &mut cursor.connection {
                Some((_, options)) => *options += 1,
                None => notes.at(&line.place, name, "belongs to no connection"),
            }
        } else if options::LISTENER.contains(&name)
            || self.per_listener && options::SECURITY.contains(&name)
        {
            let index = cursor.listener.unwrap_or_else(|| self.default_listener(default));
            self.listeners[index].options.push(line);
        } else {
            self.global.push(line);
        }
    }

    fn default_listener(&mut self, default: &mut Option<usize>) -> usize {
        *default.get_or_insert_with(|| {
            self.listeners.push(Listener::by_default());
            self.listeners.len() - 1
        })
    }

    /// Returns the last line with an option that belongs to no listener.
    pub fn option(&self, name: &str) -> Option<&Line> {
        self.global.iter().rfind(|line| line.name == name)
    }

    /// Returns a path that is named in the file. A relative one begins in the directory in which mosquitto is
    /// started, which is not known: here it is the current one, or else that of mosquitto.conf.
    pub fn path(&self, name: &str) -> PathBuf {
        let (path, beside) = (PathBuf::from(name), self.directory.join(name));
        let found = if !path.exists() && beside.exists() { beside } else { path };
        std::path::absolute(&found).unwrap_or(found)
    }
}

fn note_connection(connection: Option<(Line, u64)>, notes: &mut Notes) {
    let Some((line, options)) = connection else { return };
    let what = format!(
        "connection {} with {}",
        line.value,
        crate::plural::count(options, "option", "options")
    );
    let reason =
        "connections to other brokers do not exist; the other broker can connect to this one";
    notes.at(&line.place, what, reason);
}

/// Returns the lines of all files in the order in which mosquitto reads them, each with the number of its file.
fn all_lines(path: &Path, notes: &mut Notes) -> anyhow::Result<Vec<(usize, Line)>> {
    let mut all = Vec::new();
    let mut files = 0;
    for line in lines(path)? {
        if line.name != "include_dir" {
            all.push((0, line));
            continue;
        }
        let directory = Path::new(&line.value);
        let beside = path.parent().unwrap_or(Path::new("")).join(directory);
        let directory = if directory.is_dir() { directory } else { &beside };
        let names = files_in(directory)
            .with_context(|| format!("{}: reading {}", line.place, line.value))?;
        for file in names {
            files += 1;
            for line in lines(&file)? {
                if line.name == "include_dir" {
                    line.leave(notes);
                } else {
                    all.push((files, line));
                }
            }
        }
    }
    Ok(all)
}

/// Returns the files of an include_dir, in the order of mosquitto: by letters, capital ones first among the same.
fn files_in(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| name.len() > 5 && name.ends_with(".conf"))
        else {
            continue;
        };
        let key: Vec<_> = name.bytes().map(|byte| (byte.to_ascii_uppercase(), byte)).collect();
        names.insert(key, directory.join(name));
    }
    Ok(names.into_values().collect())
}

/// Reads the lines with options of one file.
fn lines(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text = text_of(path)?;
    let file: Rc<str> = path.display().to_string().into();
    let mut lines = Vec::new();
    for (number, text) in text.lines().enumerate() {
        let trimmed = text.trim_matches(' ').trim_end();
        if text.starts_with('#') || trimmed.is_empty() {
            continue;
        }
        let (name, value) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        let place = Place { file: Rc::clone(&file), line: number + 1 };
        lines.push(Line { place, name: name.into(), value: value.trim().into() });
    }
    Ok(lines)
}

/// Reads a text file of mosquitto.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub fn text_of(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
