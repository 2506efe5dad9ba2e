"""How often is the doctor right? Realistic programs, sick and well, judged by perfdoctor and by its peers."""
