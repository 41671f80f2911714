"""Where memory goes, by arithmetic: the sizes of what a run holds, and the settings that make it fit. No torch here."""
