//! A plain TCP proxy before a server, which can be made to pass nothing on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Passes on what comes, until it is stalled.
pub(crate) struct Proxy {
    pub(crate) port: u16,

    stalled: Arc<AtomicBool>,
    /// What must come for its connection to be cut, and how often it is passed on before.
    cuts: Arc<Mutex<Option<Cut>>>,
}

struct Cut {
    text: &'static str,
    passes: u32,
}

/// What a cancel request begins with: its length and its code.
const CANCEL_REQUEST: [u8; 8] = [0, 0, 0, 16, 0x04, 0xD2, 0x16, 0x2E];

impl Proxy {
    /// Before the server at this port of 127.0.0.1.
    pub(crate) fn start(server: u16) -> Proxy {
        Proxy::with_late_cancels(server, Duration::ZERO)
    }

    /// As [`Proxy::start`], but cancel requests arrive so much later.
    pub(crate) fn with_late_cancels(server: u16, late: Duration) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stalled = Arc::new(AtomicBool::new(false));
        let switch = Arc::clone(&stalled);
        let cuts = Arc::new(Mutex::new(None));
        let cut_at = Arc::clone(&cuts);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let switch = Arc::clone(&switch);
                    let cuts = Arc::clone(&cut_at);
                    std::thread::spawn(move || pass_on(from, to, &switch, &cuts, late));
                }
            }
        });
        Proxy { port, stalled, cuts }
    }

    /// Whether what comes is kept back from now on. No connection ends of it.
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Cuts the connection on which this comes, after it was passed on this often.
    pub(crate) fn cut_at(&self, text: &'static str, passes: u32) {
        *self.cuts.lock().unwrap() = Some(Cut { text, passes });
    }

    /// Whether that has happened.
    pub(crate) fn has_cut(&self) -> bool {
        self.cuts.lock().unwrap().is_none()
    }
}

fn pass_on(
    mut from: TcpStream,
    mut to: TcpStream,
    stalled: &AtomicBool,
    cuts: &Mutex<Option<Cut>>,
    late: Duration,
) {
    let mut bytes = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if bytes[..read].starts_with(&CANCEL_REQUEST) {
            std::thread::sleep(late);
        }
        while stalled.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let is_cut = cuts.lock().unwrap().take_if(|cut| {
            let text = cut.text.as_bytes();
            let is_here = bytes[..read].windows(text.len()).any(|at| at == text);
            let is_cut = is_here && cut.passes == 0;
            cut.passes -= u32::from(is_here && !is_cut);
            is_cut
        });
        if is_cut.is_some() {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    while stalled.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = to.shutdown(Shutdown::Write);
}
