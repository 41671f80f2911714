"""What is going wrong in a run, and what to try: rules over its recorded numbers. No torch."""
