--------------------------- MODULE EmbedSuspects ---------------------------
(***************************************************************************)
(* Batches, and jobs that kill their workers: domain/fairness.py, the      *)
(* lanes of store/lease.py and worker/intake.py. Whoever is leased       *)
(* together with a poison job loses an attempt with it. Suspects, jobs     *)
(* whose lease has expired, are leased only with suspects, a few at once,  *)
(* and the last attempt of each is made alone. A job whose first expiry    *)
(* comes at its last attempt (it has failed by itself before) gets that    *)
(* attempt again, as a suspect: so no job fails by an expiry it shared.    *)
(*                                                                         *)
(* Left out: everything that EmbedLease.tla has. A death, the expiry and   *)
(* the recovery are one step, and only poison kills: a job whose workers   *)
(* die of something else again and again fails, and must.                  *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Workers, Innocent, Poison, MaxAttempts, GroupSize,
    IsolatesSuspects, \* suspects are leased only with suspects, by a worker that holds nothing
    LastIsAlone,      \* the last attempt of a suspect is made alone
    GivesBack,        \* a first expiry is never the end
    StaysAlone        \* who holds a suspect leases nothing more

VARIABLES job, held
vars == <<job, held>>

Jobs == Innocent \cup Poison
Pending == {j \in Jobs : job[j].status = "pending"}
Suspects == {j \in Jobs : job[j].suspect}

Init ==
    /\ job = [j \in Jobs |->
        [status |-> "pending", attempts |-> 0, suspect |-> FALSE, by |-> "nobody"]]
    /\ held = [w \in Workers |-> {}]

IsOnLastAttempt(j) == job[j].attempts + 1 >= MaxAttempts

IsAllowed(w, batch) == batch \cap Suspects # {} =>
    /\ IsolatesSuspects => held[w] = {} /\ batch \subseteq Suspects
    /\ Cardinality(batch) <= GroupSize
    /\ LastIsAlone /\ (\E j \in batch : IsOnLastAttempt(j)) => Cardinality(batch) = 1

Lease(w) == \E batch \in SUBSET Pending \ {{}} :
    /\ IsAllowed(w, batch)
    /\ StaysAlone => held[w] \cap Suspects = {}
    /\ held' = [held EXCEPT ![w] = @ \cup batch]
    /\ job' = [j \in Jobs |-> IF j \in batch
        THEN [job[j] EXCEPT !.status = "processing", !.attempts = @ + 1] ELSE job[j]]

Complete(w) == \E j \in held[w] \cap Innocent :
    /\ held' = [held EXCEPT ![w] = @ \ {j}]
    /\ job' = [job EXCEPT ![j].status = "completed"]

Failed(j, by) == [j EXCEPT !.status = "failed", !.by = by]

(* An attempt that fails by itself: the provider refused, or the text was too odd. *)
Fail(w) == \E j \in held[w] \cap Innocent :
    /\ held' = [held EXCEPT ![w] = @ \ {j}]
    /\ job' = [job EXCEPT ![j] = IF @.attempts >= MaxAttempts
        THEN Failed(@, "itself") ELSE [@ EXCEPT !.status = "pending"]]

Recovered(j, by) ==
    IF j.attempts < MaxAttempts
    THEN [j EXCEPT !.status = "pending", !.suspect = TRUE]
    ELSE IF GivesBack /\ ~j.suspect /\ MaxAttempts > 1
    THEN [j EXCEPT !.status = "pending", !.suspect = TRUE, !.attempts = @ - 1]
    ELSE Failed(j, by)

Die(w) ==
    /\ held[w] \cap Poison # {}
    /\ held' = [held EXCEPT ![w] = {}]
    /\ LET by == IF Cardinality(held[w]) = 1 THEN "death alone" ELSE "death in company" IN
        job' = [j \in Jobs |-> IF j \in held[w] THEN Recovered(job[j], by) ELSE job[j]]

Next == \E w \in Workers : Lease(w) \/ Complete(w) \/ Fail(w) \/ Die(w)
Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Next)

(* I9: a poison job fails nobody else, and nobody, not even a poison, fails in company ... *)
InnocentNeverFails == \A j \in Innocent : job[j].by \in {"nobody", "itself"}
NobodyFailsInCompany == \A j \in Jobs : job[j].by # "death in company"

(* ... costs others that nobody suspects no attempt once it is a suspect ... *)
OnlySuspectsShare == \A w \in Workers :
    held[w] \cap Suspects # {} => held[w] \subseteq Suspects

(* ... and neither starves the other. *)
EverybodyEnds == <>[](\A j \in Jobs :
    job[j].status \in IF j \in Poison THEN {"failed"} ELSE {"completed", "failed"})
=============================================================================
