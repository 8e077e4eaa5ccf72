"""Models as other people write them: are they taken as they are, and is what ``isvi.fit`` says about them right?"""
