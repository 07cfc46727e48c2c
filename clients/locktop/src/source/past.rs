//! The questions about what has happened. They are asked only while somebody looks at the answer.

use redis::{cmd, Cmd, Value};

use super::connection::Refusal;
use super::look::Looker;
use super::{reply, Databases, Wishes};
use crate::model::past::{Contended, Forced};

/// The server keeps no more.
const LOG: u32 = 128;

impl Looker {
    /// Of the databases that are looked at.
    pub(super) fn contended(
        &mut self,
        wishes: &Wishes,
        databases: &[u32],
    ) -> Result<Result<Vec<Contended>, String>, String> {
        let mut all = Vec::new();
        for db in databases {
            if let Err(refusal) = self.line.select(*db)? {
                // The other databases may have been read.
                if wishes.databases == Databases::All {
                    continue;
                }
                return Ok(Err(format!("database {db}: {}", refusal.text)));
            }
            let question = cmd("LOCK.TOP").arg(wishes.top).arg("CONTENDED").take();
            match self.ask_past("LOCK.TOP CONTENDED", question)? {
                Ok(value) => all.extend(reply::contended(&value, *db)),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(all))
    }

    /// Of all databases.
    pub(super) fn log(&mut self) -> Result<Result<Vec<Forced>, String>, String> {
        let question = cmd("LOCK.LOG").arg(LOG).take();
        let value = match self.ask_past("LOCK.LOG", question)? {
            Ok(value) => value,
            Err(why) => return Ok(Err(why)),
        };
        let now_ms = self.now_ms()?;
        Ok(Ok(reply::log(&value, now_ms)))
    }

    fn ask_past(&mut self, name: &str, question: Cmd) -> Result<Result<Value, String>, String> {
        let answer = self.line.ask_one(question)?;
        Ok(answer.map_err(|refusal| sentence(name, &refusal)))
    }
}

fn sentence(name: &str, refusal: &Refusal) -> String {
    if refusal.is_denied() {
        format!("the user may not call {name}")
    } else if refusal.code == "ERR" {
        // The command is unknown, or the option.
        format!("the module here is too old for {name}")
    } else {
        format!("{name}: {}", refusal.text)
    }
}
