------------------------------ MODULE Promises ------------------------------
(***************************************************************************)
(* What the lease protocol promises. Each promise is written from the      *)
(* outside, in terms of fences, texts and what was really written, and not *)
(* with the guards that EmbedLease.tla uses, so that a guard that is taken *)
(* away is missed here.                                                    *)
(***************************************************************************)
EXTENDS EmbedLease, TLC

Symmetry == Permutations(Workers)

Exists(v) == job[v].status # "none"
Moved(v) == job'[v].status # job[v].status

(* Not a promise: prints each pair of states when it first occurs, for a test that compares *)
(* them with the table of the code.                                                       *)
ASSUME TLCSet(1, {})
PrintsNewMoves == \A v \in Jobs : Exists(v) /\ Moved(v) =>
    LET move == <<job[v].status, job'[v].status>> IN
    move \in TLCGet(1) \/ (TLCSet(1, TLCGet(1) \cup {move}) /\ PrintT(move))

Range(sequence) == {sequence[i] : i \in 1..Len(sequence)}

TypesHold ==
    /\ entity \in [version : Jobs, text : 1..(Changes + 1), live : BOOLEAN]
    /\ \A v \in Jobs :
        /\ job[v].status \in Terminal \cup {"none", "pending", "processing"}
        /\ job[v].owner \in Workers \cup {Nobody, "twin"}
        /\ job[v].by \in {Nobody, "queue", "operator"}
    /\ \A w \in Workers : worker[w].job \in Jobs \cup {0}

(* I1: a fence is given out once. *)
OneHolder == \A w, x \in Workers :
    w # x /\ worker[w] # Idle /\ worker[x] # Idle
        => <<worker[w].job, worker[w].fence>> # <<worker[x].job, worker[x].fence>>

(* I1: only a pending job is leased, and every lease has a higher fence. *)
FencesRise == [][\A v \in Jobs : job'[v].fence # job[v].fence =>
    /\ job[v].status = "pending" /\ job'[v].status = "processing"
    /\ job'[v].fence = job[v].fence + 1]_vars

(* I2: whoever does not hold the current fence changes nothing. *)
StaleChangesNothing == [][\A w \in Workers :
    /\ worker[w] # Idle
    /\ ~(Holds(w, worker[w].job) /\ job[worker[w].job].status = "processing")
    /\ \/ Heartbeat(w) \/ Load(w) \/ Complete(w) \/ Release(w)
       \/ \E category \in {"TRANSIENT", "PERMANENT"} : Fail(w, category)
    => UNCHANGED <<job, vector>>]_vars

(* M39: no pair of states but those of the table. *)
OnlyKnownMoves == [][\A v \in Jobs : Moved(v) =>
    IF Exists(v) THEN <<job[v].status, job'[v].status>> \in Moves
    ELSE job'[v].status = "pending"]_vars

(* I3: completed is final, unless its vector is no longer that of the entity. *)
CompletedStays == [][\A v \in Jobs : job[v].status = "completed" /\ Moved(v) => ~Fits']_vars

(* I4: at most one vector for every lease. *)
AppliedOnce == \A v \in Jobs : Cardinality(Range(applied[v])) = Len(applied[v])

(* I4, M48: a vector is written if and only if its job becomes completed by that step. *)
VectorWithCompletion == [][
    /\ applied' # applied =>
        \E v \in Jobs : job[v].status = "processing" /\ job'[v].status = "completed"
    /\ \A v \in Jobs : Moved(v) /\ job'[v].status = "completed" =>
        vector' = [version |-> v, text |-> job'[v].hash]]_vars

(* I5: a vector is that of the entity as it is when the vector is written. *)
VectorFitsWhenWritten == [][applied' # applied => Fits']_vars

(* I5: it stays so as long as its job calls itself completed, and no neighbour changes. *)
VectorMatchesText == "neighbour" \in Paths \/
    (entity.live /\ job[entity.version].status = "completed" => Fits)

(* I5: neither version nor text of a vector ever falls. *)
VectorNeverOlder == [][vector # Nothing /\ vector' # Nothing =>
    vector'.version >= vector.version /\ vector'.text >= vector.text]_vars

(* I8: never more attempts than allowed. *)
AttemptsBound == \A v \in Jobs : job[v].attempts <= MaxAttempts

(* I8: counted are exactly the leases that failed or expired, and the one under way. *)
AttemptsAreHonest == \A v \in Jobs :
    /\ job[v].status \in {"pending", "failed"} => job[v].attempts = spent[v]
    /\ job[v].status = "processing" => job[v].attempts = spent[v] + 1

(* I9: no job is tried more often than allowed, whatever happens to its workers. *)
TriesBound == \A v \in Jobs : spent[v] <= MaxAttempts

(* I11: a lease that has not expired is not recovered. *)
LiveLeaseStays == [][\A v \in Jobs : job'[v].expiries > job[v].expiries =>
    job[v].status = "processing" /\ job[v].expired]_vars

(* I12: a repeated completion is told the truth about the first one. *)
RepeatIsRecognised == \A w \in Workers :
    LET v == worker[w].job
        outcome == Judgement(w, job[v], entity)
        was_applied == worker[w].fence \in Range(applied[v]) IN
    worker[w].text # Unknown =>
        /\ outcome = "already" => was_applied
        /\ outcome = "fenced" => ~(was_applied /\ Holds(w, v) /\ job[v].status = "completed")

(* M50: an owner if and only if the job is leased. *)
LocksAreWhole == \A v \in Jobs :
    /\ job[v].status = "processing" <=> job[v].owner # Nobody
    /\ job[v].expired => job[v].status = "processing"

(* A job that nobody has taken up does not fail. A death counts as a try, because the job may be *)
(* what kills. This does NOT hold when workers pause beyond their leases MaxAttempts times: the  *)
(* attempt is counted at the lease, and recovery cannot know that nothing was tried.             *)
FailedWasTried == \A v \in Jobs : job[v].status = "failed" => tried[v] # Unknown

-----------------------------------------------------------------------------
(* Progress: every job ends, and every entity gets its vector or an ending   *)
(* that an operator sees.                                                    *)

Done == \A v \in Jobs : Exists(v) => job[v].status \in Terminal
Current == job[entity.version]
Fresh == entity.live =>
    \/ Fits
    \/ Current.status = "failed"
    \/ Current.status = "cancelled" /\ Current.by = "operator"

EventuallyWell == <>[](Done /\ Fresh)
PoisonEndsFailed == <>[](job[1].status = "failed")

(* The same without fairness: where nothing goes on by itself, nothing is left to do. *)
NothingIsForgotten == ENABLED Progress \/ (Done /\ Fresh)

(* Where a failed job is the end, it has failed with the text that the entity has. This does NOT *)
(* hold for jobs that the trigger made: it leaves leased jobs alone, and a job that it made does *)
(* not say for which text it failed by expiry. An operator's retry helps, or the next change.    *)
FailedWithThisText == ENABLED Progress \/
    (entity.live /\ Current.status = "failed" => tried[entity.version] = entity.text)
=============================================================================
