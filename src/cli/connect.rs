//! The connection options that every verb has, as psql has them.

use crate::server::about;
pub use crate::server::connect::*;
use crate::server::similar::similar;
use std::fmt;

/// The database in which the names of the others are read.
const MAINTENANCE: &str = "postgres";

/// Options to flatten into a verb's arguments. They take `-h`, so the command must be built with
/// `disable_help_flag` and [`HelpFlag`].
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection options")]
pub struct ConnectionArgs {
    /// Database server host or socket directory
    #[arg(short = 'h', long, value_name = "HOSTNAME")]
    pub host: Option<String>,

    /// Database server port
    #[arg(short = 'p', long, value_name = "PORT")]
    pub port: Option<String>,

    /// Database user name
    #[arg(short = 'U', long, value_name = "USERNAME")]
    pub username: Option<String>,

    /// Database name, connection URI or key=value connection string
    #[arg(short = 'd', long, value_name = "DBNAME")]
    pub dbname: Option<String>,

    /// Never prompt for a password
    #[arg(short = 'w', long, overrides_with = "password")]
    pub no_password: bool,

    /// Force a password prompt before connecting
    #[arg(short = 'W', long, overrides_with = "no_password")]
    pub password: bool,

    /// What the connection to one database of several has in addition.
    #[arg(skip)]
    pub of_fleet: OfFleet,
}

/// What a connection to one database of several has in addition.
#[derive(Clone, Default)]
pub struct OfFleet {
    /// The database, whatever else says.
    pub database: Option<String>,
    /// Parameters that have these values unless something else gives them.
    pub defaults: Vec<(&'static str, &'static str)>,
    /// The connection options for commands.
    pub place: Vec<String>,
}

/// `-h`, `-?` and `--help` of verbs that do not connect.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PlainHelpFlag {
    /// Show this help, then exit
    #[arg(short = '?', short_alias = 'h', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// `-?` and `--help`, in place of clap's own flag, whose `-h` is the host here.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct HelpFlag {
    /// Show this help, then exit
    #[arg(short = '?', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl ConnectionArgs {
    /// What these arguments and the surroundings come to.
    ///
    /// # Errors
    /// As [`resolve`](crate::server::connect::resolve()).
    pub fn resolve(&self, around: &impl Surroundings) -> Result<Resolved, ConnectError> {
        let given = Given {
            host: self.host.clone(),
            port: self.port.clone(),
            user: self.username.clone(),
            dbname: self.dbname.as_ref().map(Secret::new),
            database: self.of_fleet.database.clone(),
            defaults: self.of_fleet.defaults.clone(),
        };
        resolve(&given, around)
    }

    /// The options that lead to the same database again, as words of a command: those of one of several databases, else those
    /// that were given, or with `everywhere` all that are needed in another environment. A connection string is left out,
    /// since it may hold a password.
    pub(super) fn repeated(&self, everywhere: bool) -> Vec<String> {
        if !self.of_fleet.place.is_empty() {
            return self.of_fleet.place.clone();
        }
        if everywhere && let Ok(resolved) = self.resolve(&ThisProcess::default()) {
            let user = ("-U", resolved.user.clone());
            let options = resolved.options().into_iter().chain([user]);
            return options.flat_map(|(option, value)| [option.to_owned(), value]).collect();
        }
        let dbname = self.dbname.as_ref().filter(|dbname| !is_connection_string(dbname));
        let given = [
            ("-h", &self.host),
            ("-p", &self.port),
            ("-U", &self.username),
            ("-d", &dbname.cloned()),
        ];
        let mut words = Vec::new();
        for (option, value) in given {
            if let Some(value) = value {
                words.extend([option.to_owned(), value.clone()]);
            }
        }
        words
    }

    /// Connects as these arguments, the environment and the user's files say. `warn` is told what the user
    /// should know although it goes on. A password is asked for on the terminal if a server wants one and
    /// none is known, unless `--no-password` forbids it.
    ///
    /// # Errors
    /// As [`resolve`](crate::server::connect::resolve()) and [`connect`](crate::server::connect::connect).
    pub async fn connect(
        &self,
        session: &SessionOptions,
        warn: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Connection, ConnectError> {
        let mut resolved = self.resolve(&ThisProcess::default())?;
        for warning in &resolved.warnings {
            warn(warning);
        }
        if self.password
            && let Some(password) = ask_on_terminal(&resolved.user)
        {
            for target in &mut resolved.targets {
                target.password = Some(password.clone());
                target.password_from_file = false;
            }
        }
        let may_ask = !self.no_password && !self.password;
        let connected = connect(&resolved, session, &mut |user: &str| {
            if may_ask { ask_on_terminal(user) } else { None }
        })
        .await;
        match connected {
            Err(ConnectError::NoDatabase { attempts, .. }) => {
                const SEVERAL: &str = "--targets FILE, or --all, runs on several databases.";
                let near = similar_database(&resolved, session).await;
                let near = near.map(|near| format!("Perhaps you meant the database {near}."));
                let several = resolved.dbname.contains(',').then(|| SEVERAL.to_owned());
                Err(ConnectError::NoDatabase { attempts, hint: several.or(near) })
            }
            Ok(connection) => {
                tracing::debug!("connected to {}", connection.server_text());
                Ok(connection)
            }
            failed => failed,
        }
    }
}

/// The database whose name is most like that of one that does not exist; `None` also if the server does not tell.
async fn similar_database(resolved: &Resolved, session: &SessionOptions) -> Option<String> {
    let mut maintenance = resolved.clone();
    maintenance.dbname = MAINTENANCE.to_owned();
    maintenance.driver.dbname(MAINTENANCE);
    let connection = connect(&maintenance, session, &mut |_| None).await.ok()?;
    let asked = connection.reading(async || about::databases(connection.client()).await);
    let names = asked.await.ok()?;
    similar(&resolved.dbname, &names).first().map(|name| (*name).to_owned())
}

/// Asks on the controlling terminal; `None` where there is none.
fn ask_on_terminal(user: &str) -> Option<Secret> {
    rpassword::prompt_password(format!("Password for user {user}: ")).ok().map(Secret::new)
}

impl fmt::Debug for ConnectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a connection string may hold a password
        let dbname = self
            .dbname
            .as_deref()
            .map(|dbname| if is_connection_string(dbname) { "…" } else { dbname });
        f.debug_struct("ConnectionArgs")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("username", &self.username)
            .field("dbname", &dbname)
            .field("no_password", &self.no_password)
            .field("password", &self.password)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser, Subcommand};

    /// A command as toastctl's is built.
    #[derive(Debug, Parser)]
    #[command(version, disable_help_flag = true)]
    struct Sample {
        #[command(flatten)]
        help: HelpFlag,
        #[command(subcommand)]
        verb: Verb,
    }

    #[derive(Debug, Subcommand)]
    enum Verb {
        Look {
            #[command(flatten)]
            connection: ConnectionArgs,
            #[command(flatten)]
            help: HelpFlag,
        },
    }

    fn parse(words: &str) -> Result<ConnectionArgs, clap::Error> {
        let Verb::Look { connection, .. } = Sample::try_parse_from(words.split(' '))?.verb;
        Ok(connection)
    }

    #[test]
    fn the_options_are_psqls_and_clash_with_nothing() {
        Sample::command().debug_assert();
        let args = parse("x look -h db -p 5433 -U joe -d app -w").unwrap();
        assert_eq!(args.host.as_deref(), Some("db"));
        assert_eq!(args.port.as_deref(), Some("5433"));
        assert_eq!(args.username.as_deref(), Some("joe"));
        assert_eq!(args.dbname.as_deref(), Some("app"));
        assert!(args.no_password && !args.password);
        let last = parse("x look -w -W").unwrap();
        assert!(last.password && !last.no_password);
    }

    #[test]
    fn help_is_a_question_mark_and_version_a_capital() {
        for words in ["x -?", "x --help", "x look -?", "x look --help"] {
            let shown = parse(words).unwrap_err();
            assert_eq!(shown.kind(), clap::error::ErrorKind::DisplayHelp, "{words}");
        }
        let version = parse("x -V").unwrap_err();
        assert_eq!(version.kind(), clap::error::ErrorKind::DisplayVersion);
        let missing = parse("x look -h").unwrap_err();
        assert_eq!(missing.kind(), clap::error::ErrorKind::InvalidValue);
    }

    #[test]
    fn debug_shows_no_password() {
        for dbname in ["postgres://u:sesame@h/d", "password=sesame"] {
            let args = ConnectionArgs { dbname: Some(dbname.into()), ..ConnectionArgs::default() };
            assert!(!format!("{args:?}").contains("sesame"));
        }
        let args = ConnectionArgs { dbname: Some("app".into()), ..ConnectionArgs::default() };
        assert!(format!("{args:?}").contains("app"));
    }
}
